"""The Langevin corrector: samples of q moved towards the posterior."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import flat_noise
from vages.models import EBLVM

_UNROLLED = 5  # steps in a turn of the loop; a turn costs a GPU nearly as much as a step


@dataclass(frozen=True)
class Corrector:
    """`steps` times h ← h + ½ α ∇_h log p̃(v, h) + noise (Eq. 11), with no pass through `features`.

    α is `step_size`. The noise has standard deviation √α, or `noise_std` where given: practice takes it smaller.
    Corrected samples are constants: no gradient flows through them.
    """

    steps: int
    step_size: float
    noise_std: float | None = None

    def __post_init__(self):
        check_count("steps", self.steps, 0, "0 corrects nothing")
        check_positive("step_size", self.step_size, "number", "take 0.01, say")
        if self.noise_std is not None and not (is_finite(self.noise_std) and self.noise_std >= 0):
            raise ValueError(
                f"noise_std: expected a finite number, 0 or more, got {_told(self.noise_std)}; "
                "leave it out for √step_size"
            )

    def noise(self, key: PRNGKeyArray, h: Array) -> Array:
        """Standard noise for samples h, which are asked for their shape and dtype alone: (steps, *h.shape)."""
        if not jnp.issubdtype(h.dtype, jnp.floating):
            raise TypeError(
                f"h: expected floating (continuous) latents, got {h.dtype}; skip the corrector for discrete h"
            )
        return flat_noise(jax.random.normal, key, (self.steps, *h.shape), h.dtype)

    def __call__(self, model: EBLVM, features: Any, h: Array, noise: Array) -> Array:
        """The corrected h (batch, L, …), from the features of v and from noise that is already drawn."""
        std = self.step_size**0.5 if self.noise_std is None else self.noise_std
        force = jax.vmap(lambda features, h: jax.vmap(jax.grad(lambda h: model.log_joint(features, h)))(h))

        def step(h, noise):
            return h + 0.5 * self.step_size * force(features, h) + std * noise, None

        return jax.lax.stop_gradient(jax.lax.scan(step, h, noise, unroll=_UNROLLED)[0])


def langevin_corrector(
    model: EBLVM,
    features: Any,
    h: Array,
    key: PRNGKeyArray,
    *,
    steps: int,
    step_size: float,
    noise_std: float | None = None,
) -> Array:
    """h (batch, L, …) of continuous latents, corrected as `Corrector` says."""
    corrector = Corrector(steps, step_size, noise_std)
    return corrector(model, features, h, corrector.noise(key, h))


def check_count(name: str, count: Any, least: int, advice: str) -> None:
    """Raise unless it is a whole number, Python's or NumPy's, from `least` on."""
    if not (isinstance(count, int | np.integer) and count >= least):
        raise ValueError(f"{name}: expected at least {least}, a whole number, got {_told(count)}; {advice}")


def check_positive(name: str, value: Any, kind: str, advice: str) -> None:
    """Raise unless it is a finite number above 0; `kind` is what it is called."""
    if not (is_finite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite {kind} above 0, got {_told(value)}; {advice}")


def is_finite(value: Any) -> bool:
    """Whether it is one finite number, Python's, NumPy's or JAX's."""
    return (isinstance(value, Real) or getattr(value, "shape", None) == ()) and math.isfinite(value)


def _told(value: Any) -> str:
    """The value in one line, of an array the beginning."""
    return " ".join(repr(value).split())[:80]
