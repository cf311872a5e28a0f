"""The noise of denoising score matching: one level, or a range of levels spread over the batch."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_scale
from vages.distributions import flat_noise
from vages.objectives.objective import Batch, Objective


@dataclass(frozen=True)
class NoiseRange:
    """Noise levels of multiscale DSM, σ from `begin` to `end`, with the target of the level `base` = σ₀ (Eq. 17).

    Example i of a batch has the i-th point of a linear or geometric grid. If data come in random order, as rows of an
    array do, this is a stratified sample of the uniform or the log-uniform p(σ). Your own batches need a random order.
    """

    begin: float
    end: float
    spacing: Literal["linear", "geometric"] = "linear"
    base: float = 0.1

    def __post_init__(self):
        for name in ("begin", "end", "base"):
            check_level(getattr(self, name), name)
        if self.spacing not in ("linear", "geometric"):
            raise ValueError(f"spacing: expected 'linear' or 'geometric', got {self.spacing!r}; choose one")

    def levels(self, batch: int, dtype=jnp.float32) -> Float[Array, "batch"]:
        """Return σ of each example, by its position in the whole batch."""
        spaced = jnp.linspace if self.spacing == "linear" else jnp.geomspace
        return spaced(self.begin, self.end, batch, dtype=dtype)


def check_level(sigma: float | NoiseRange, name: str = "sigma") -> None:
    """Raise unless this is a noise level or a `NoiseRange`."""
    if not isinstance(sigma, NoiseRange):
        check_scale(name, sigma, "noise level", "take 0.1, say")


def check_size(sigma: float | NoiseRange, batch: int) -> None:
    """Raise ValueError if batches are too small for several levels: one example would always have the first."""
    if isinstance(sigma, NoiseRange) and batch < 2:
        raise ValueError(f"batch: expected at least 2 examples for a range of noise levels, got {batch}; give more")


class Noised(NamedTuple):
    """A perturbed batch v, the target of the score at v, and weights of the examples.

    `weight` is that of the example's divergence in the posterior's steps, `loss_weight` that of its squared error in
    the objective; None means 1.
    """

    v: Array
    target: Array
    weight: Float[Array, "batch"] | None = None
    loss_weight: Float[Array, "batch"] | None = None
    context: Any = None


def add_noise(key: PRNGKeyArray, batch: Batch, sigma: float | NoiseRange) -> Noised:
    """Add noise of this level to a batch."""
    epsilon = flat_noise(jax.random.normal, key, batch.v.shape, batch.v.dtype)
    return perturb(batch.v, epsilon, sigma)._replace(context=batch.context)


def perturb(w: Array, epsilon: Array, sigma: float | NoiseRange) -> Noised:
    """Return v = w + σ ε and its target: −ε / σ = ∇_v log p_σ(v | w), or for a range of levels ∇_v log p_σ₀(v | w).

    For a range, the squared error is weighted by 1/σ² and the divergence by 1/σ, which the paper's equation omits but
    its experiments use.
    """
    if not isinstance(sigma, NoiseRange):
        return Noised(w + sigma * epsilon, -epsilon / sigma)
    levels = sigma.levels(len(w), w.dtype)
    shift = scale(levels, epsilon)
    return Noised(w + shift, -shift / sigma.base**2, 1 / levels, 1 / levels**2)


def zero_score_loss(key: PRNGKeyArray, objective: Any, batch: Batch) -> float | None:
    """Return the loss of a score of 0, as a baseline; None if the objective does not add noise.

    If the slope in the noise level is matched as well, its loss is 1 on average, as ‖ε‖² has variance 2 d.
    """
    if not isinstance(objective, Objective):
        return None
    points = objective.perturb(key, batch)
    if not isinstance(points, Noised):
        return None
    each = jnp.sum((points.target**2).reshape(len(points.v), -1), axis=1)
    loss = 0.5 * jnp.mean(each if points.loss_weight is None else points.loss_weight * each)
    return float(loss) + getattr(objective, "level_weight", 0.0)


def scale(weight: Float[Array, "batch"] | None, x: Array) -> Array:
    """Multiply each example of x by its weight."""
    return x if weight is None else weight.reshape(-1, *(1,) * (x.ndim - 1)) * x
