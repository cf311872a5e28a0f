"""Samples of a model as a stream of images, drawn by a named protocol."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from vages.app.recipes.sources import Pixels
from vages.bounds import shown
from vages.evaluation import Gray, as_pixels
from vages.models import EBLVM
from vages.posteriors import Posterior, posterior_means
from vages.samplers import Heun, SamplingWarning, Schedule, sample, sample_joint, sample_v
from vages.training import seed_keys

Protocol = Literal["paper", "unconditional"]
PROTOCOLS = {
    "paper": "paper: v given h, the posterior means of random training images",
    "unconditional": "unconditional: v and h jointly, independent of any image",
}
_BLOCK = 500  # chains that run together


def block_size(count: int) -> int:
    """Return the number of images per block, if `count` are drawn."""
    return min(count, _BLOCK)


def check_seed(seed: int) -> None:
    """Raise ValueError unless the seed is valid for both JAX and NumPy."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed: expected a seed from 0 to below 2**32, got {shown(seed)}; choose another")


# takes a key, the index of the first image and the number of images; returns v, and which are lost
Block = Callable[[PRNGKeyArray, int, int], tuple[Any, Any]]
Drawn = tuple[Pixels, Bool[np.ndarray, "block"]]  # the images of a block that are not lost, and which are lost
Remember = Callable[[int, Callable[[], Drawn]], Drawn]  # returns a stored block, or draws it


def draw_now(begin: int, draw: Callable[[], Drawn]) -> Drawn:
    """Draw a block without storing it."""
    return draw()


class Samples:
    """Images drawn from a model, one block at a time; `diverged` counts those that are lost.

    `sampler` describes the sampler, `gradients` is the number of gradients of the energy per image, and `given` are the
    images that h is inferred from, if any.
    """

    def __init__(
        self,
        block: Block,
        shape: tuple[int, ...],
        sampler: str,
        gradients: int,
        *,
        given: np.ndarray | None = None,
        seed: int = 0,
        gray: Gray = "refuse",
        use: str = "quality",
    ):
        check_seed(seed)
        as_pixels(np.zeros((1, *shape), np.uint8), "samples", gray)  # fails here, not after hours of sampling
        self.block, self.sampler, self.gradients, self.given = block, sampler, gradients, given
        self.gray: Gray = gray
        self.key, self.diverged = seed_keys((seed,), use)[0], 0

    def draw(
        self,
        count: int,
        progress: Callable[[int, int], object] | None = None,
        remember: Remember = draw_now,
    ) -> Iterator[Pixels]:
        """Yield the pixels of `count` images, without those that are lost. Values are clipped to [0, 1].

        All blocks have the same size, so that they share a compiled program.
        """
        size, self.diverged = block_size(count), 0
        for begin in range(0, count, size):
            pixels, lost = remember(begin, partial(self._drawn, begin, size))
            lost = lost[: count - begin]
            self.diverged += int(lost.sum())
            if progress is not None:
                progress(min(begin + size, count), count)
            if not lost.all():
                yield pixels[: int((~lost).sum())]

    def _drawn(self, begin: int, size: int) -> Drawn:
        v, lost = map(np.asarray, self.block(jax.random.fold_in(self.key, begin), begin, size))
        return as_pixels(np.clip(v[~lost], 0, 1), "samples", self.gray), lost


def chain_samples(
    chains: tuple[EBLVM, Schedule],
    model: EBLVM,
    posterior: Posterior | None,
    train: np.ndarray | None,
    *,
    seed: int = 0,
    **how: Any,
) -> Samples:
    """Samples by annealed chains: v given posterior means of random training images, or v and h without `train`."""
    chained, schedule = chains

    def block(key: PRNGKeyArray, begin: int, size: int) -> tuple[Any, Any]:
        if train is not None and posterior is not None:
            rows = np.random.default_rng([seed, begin]).integers(len(train), size=size)
            means = posterior_means(model, posterior, train[rows])
            samples = sample_v(key, chained, jnp.asarray(means), schedule, batch=size)
        else:
            samples = sample_joint(key, chained, size, schedule, batch=size)
        return samples.v, samples.diverged

    gradients = schedule.steps + (schedule.denoise is not None)
    told = f"annealed Langevin dynamics, {schedule.steps} steps"
    if schedule.top_temperature != Schedule.top_temperature:
        told += f" from temperature {schedule.top_temperature:g}"
    return Samples(block, model.v.shape, told, gradients, given=train, seed=seed, **how)


def heun_samples(sampler: Heun, model: EBLVM, **how: Any) -> Samples:
    """Samples by Heun's method, which draws h at each gradient."""

    def block(key: PRNGKeyArray, begin: int, size: int) -> tuple[Any, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # they are counted
            v = sample(key, model, size, sampler=replace(sampler, batch=size)).v
        return v, ~jnp.all(jnp.isfinite(v), axis=tuple(range(1, v.ndim)))

    return Samples(block, model.v.shape, f"Heun's method, {sampler.steps} steps", 2 * sampler.steps - 1, **how)
