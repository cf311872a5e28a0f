"""The Langevin corrector, which moves samples of q towards p(h | v)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from vages.checks import check_count, check_positive, is_finite, told
from vages.distributions import check_key, flat_noise
from vages.models import EBLVM

_UNROLLED = 5  # steps per loop iteration, whose overhead on a GPU is nearly that of a step


@dataclass(frozen=True)
class Corrector:
    """`steps` updates h ← h + ½ α ∇_h log p̃(v, h) + noise (Eq. 11), without a pass through `features`.

    α is `step_size`. The noise has standard deviation √α, or `noise_std` if given, which is smaller in practice.
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
                f"noise_std: expected a finite number, 0 or more, got {told(self.noise_std)}; "
                "leave it out for √step_size"
            )

    def check(self, model: EBLVM) -> None:
        """Raise TypeError unless the model's latents are continuous."""
        if not model.h.continuous:
            raise TypeError(f"corrector: expected continuous h, got {model.h!r}; leave the corrector out")

    def __call__(self, key: PRNGKeyArray, model: EBLVM, features: Any, h: Any) -> Any:
        """Return the corrected h (batch, L, …), from the features of v."""
        check_key(key)
        for part in jax.tree.leaves(h):
            if not jnp.issubdtype(part.dtype, jnp.floating):
                raise TypeError(
                    f"h: expected floating (continuous) latents, got {part.dtype}; skip the corrector for discrete h"
                )
        self.check(model)
        std = self.step_size**0.5 if self.noise_std is None else self.noise_std
        force = jax.vmap(lambda features, h: jax.vmap(jax.grad(lambda h: model.log_joint(features, h)))(h))

        def step(h, noise):
            move = lambda h, force, noise: h + 0.5 * self.step_size * force + std * noise
            return jax.tree.map(move, h, force(features, h), noise), None

        return jax.lax.stop_gradient(jax.lax.scan(step, h, self._noise(key, h), unroll=_UNROLLED)[0])

    def _noise(self, key: PRNGKeyArray, h: Any) -> Any:
        leaves, tree = jax.tree.flatten(h)
        keys = [key] if len(leaves) == 1 else jax.random.split(key, len(leaves))
        draw = lambda key, x: flat_noise(jax.random.normal, key, (self.steps, *x.shape), x.dtype)
        return jax.tree.unflatten(tree, [draw(key, x) for key, x in zip(keys, leaves, strict=True)])


def langevin_corrector(
    key: PRNGKeyArray,
    model: EBLVM,
    features: Any,
    h: Any,
    *,
    steps: int,
    step_size: float,
    noise_std: float | None = None,
) -> Any:
    """Correct samples h (batch, L, …) of continuous latents; see `Corrector`."""
    return Corrector(steps, step_size, noise_std)(key, model, features, h)
