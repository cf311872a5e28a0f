"""Posteriors with parameters: any network's output as Bernoulli, one-hot or diagonal Gaussian variables.

They look at v alone; a posterior of one's own may look at features and context, too.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Bernoulli, Gaussian, Joint, OneHot
from vages.domains import Product
from vages.models import EBLVM
from vages.nets import ConvEncoder, ResidualMLP
from vages.nets.network import check_size
from vages.posteriors.posterior import Posterior


class BernoulliPosterior(Posterior):
    """q(h | v) with `network(v)` as logits; samples relaxed at `temperature`, binary at temperature 0."""

    network: Callable[[Array], Array]
    temperature: float = eqx.field(static=True, default=0.1)

    @staticmethod
    def linear(key: PRNGKeyArray, v_dim: int, h_dim: int, temperature: float = 0.1) -> "BernoulliPosterior":
        """One fully connected layer, as in the paper's GRBM experiments."""
        return BernoulliPosterior(eqx.nn.Linear(v_dim, h_dim, key=key), temperature)

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Bernoulli:
        return Bernoulli(self.network(v), self.temperature)


class CategoricalPosterior(Posterior):
    """q(h | v) with `network(v)`, n k numbers, as logits of n choices among k; samples as `BernoulliPosterior` has."""

    network: Callable[[Array], Array]
    shape: tuple[int, int] = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.1)

    @staticmethod
    def linear(key: PRNGKeyArray, v_dim: int, n: int, k: int, temperature: float = 0.1) -> "CategoricalPosterior":
        """One fully connected layer."""
        return CategoricalPosterior(eqx.nn.Linear(v_dim, n * k, key=key), (n, k), temperature)

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> OneHot:
        return OneHot(self.network(v).reshape(self.shape), self.temperature)


class GaussianPosterior(Posterior):
    """q(h | v) with `network(v)` as the pair (mean, log standard deviation)."""

    network: Callable[[Array], tuple[Array, Array]]

    @staticmethod
    def linear(key: PRNGKeyArray, v_dim: int, h_dim: int) -> "GaussianPosterior":
        """One fully connected layer for the mean and one for the log standard deviation."""
        mean, log_std = jax.random.split(key)
        return GaussianPosterior(Heads(eqx.nn.Linear(v_dim, h_dim, key=mean), eqx.nn.Linear(v_dim, h_dim, key=log_std)))

    @staticmethod
    def convolutional(
        key: PRNGKeyArray, shape: tuple[int, int, int], latents: int, *, width: int = 64
    ) -> "GaussianPosterior":
        """A convolutional network of images (channels, height, width), as in the paper's deep experiments."""
        check_size(latents=latents)
        return GaussianPosterior(Halves(ConvEncoder(key, shape, width=width, out=2 * latents)))

    @staticmethod
    def mlp(
        key: PRNGKeyArray, shape: int | tuple[int, ...], latents: int, *, width: int, depth: int
    ) -> "GaussianPosterior":
        """A residual network of fully connected layers, for what `DeepEBLVM.vectors` takes."""
        check_size(latents=latents)
        return GaussianPosterior(Halves(ResidualMLP(key, shape, width=width, depth=depth, out=2 * latents)))

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Gaussian:
        moments: Any = self.network(v)
        if hasattr(moments, "ndim") and (isinstance(model.h, Product) or moments.ndim == len(model.h.shape)):
            raise TypeError(
                f"network: expected the pair (mean, log standard deviation), got one array of shape {moments.shape}; "
                "give it twice the outputs and wrap it in posteriors.Halves"
            )
        return Gaussian(*moments)


class JointPosterior(Posterior):
    """q(h | v) of mixed latents: a posterior for each entry of the dict, independent given v."""

    parts: dict[str, Posterior]

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Joint:
        known = () if context is None else (context,)
        return Joint({name: part(model, features, v, *known) for name, part in self.parts.items()})


class Heads(eqx.Module):
    """Two networks of the same input, side by side."""

    mean: Callable[[Array], Array]
    log_std: Callable[[Array], Array]

    def __call__(self, v: Array) -> tuple[Array, Array]:
        """(mean(v), log_std(v))."""
        return self.mean(v), self.log_std(v)


class Halves(eqx.Module):
    """One network whose output is (mean, log_std), end to end."""

    network: Callable[[Array], Array]

    def __call__(self, v: Array) -> tuple[Array, Array]:
        """(mean(v), log_std(v))."""
        mean, log_std = jnp.split(self.network(v), 2)
        return mean, log_std
