"""A posterior of the noise-conditional EBLVM that reads the model's own features."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.checks import check_kind
from vages.distributions import Bernoulli, Distribution, Gaussian
from vages.domains import Binary, Empty
from vages.models import EBLVM, NoiseConditionalEBLVM
from vages.nets.conditional import waves, zeroed
from vages.posteriors.posterior import Posterior

_WAVES = 32  # size of the level embedding
_LOG_STD = 4  # bound of its absolute value


class FeaturePosterior(Posterior):
    """q(h | v, σ) from a small network of σ and the features g(u, σ), which the model couples h to.

    It is cheap, as it needs no encoder of v besides the model's. It starts at the prior p(h). Samples of binary h are
    relaxed at `temperature`, binary at temperature 0.
    """

    hidden: eqx.nn.Linear
    last: eqx.nn.Linear
    temperature: float = eqx.field(static=True, default=0.1)

    @staticmethod
    def init(
        key: PRNGKeyArray, model: NoiseConditionalEBLVM, *, width: int = 256, temperature: float = 0.1
    ) -> "FeaturePosterior":
        """One hidden layer of `width`."""
        check_kind("model", model, NoiseConditionalEBLVM, "a NoiseConditionalEBLVM", "others have no such features")
        if isinstance(model.h, Empty):
            raise TypeError(f"model: expected latents, got {model.h!r}; use ExactPosterior()")
        out = model.h.size if isinstance(model.h, Binary) else 2 * model.h.size
        size = model.network.out_size + _WAVES
        hidden, last = jax.random.split(key)
        layers = eqx.nn.Linear(size, width, key=hidden), zeroed(eqx.nn.Linear(width, out, key=last))
        return FeaturePosterior(*layers, temperature)

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Distribution:
        level = waves(features.level, _WAVES).astype(features.coupled.dtype)
        out = self.last(jax.nn.silu(self.hidden(jnp.concatenate([features.coupled, level]))))
        if isinstance(model.h, Binary):
            return Bernoulli(out.reshape(model.h.shape), self.temperature)
        mean, log_std = (x.reshape(model.h.shape) for x in jnp.split(out, 2))
        return Gaussian(mean, _LOG_STD * jnp.tanh(log_std / _LOG_STD))
