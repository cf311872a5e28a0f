"""Samples of a deep model as a stream of images, drawn by a named protocol."""

from collections.abc import Callable, Iterator
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from vages.app.recipes.sources import Pixels
from vages.bounds import shown
from vages.evaluation import Grey, as_pixels
from vages.models import EBLVM
from vages.posteriors import Posterior, posterior_means
from vages.samplers import Schedule, sample_joint, sample_v
from vages.training import seed_keys

Protocol = Literal["paper", "unconditional"]
PROTOCOLS = {
    "paper": "paper: v given h, the posterior means of random training images",
    "unconditional": "unconditional: v and h jointly, which owe nothing to any image",
}
_BLOCK = 500  # chains that run together


def check_seed(seed: int) -> None:
    """Raise unless a seed is one for JAX and NumPy alike."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed: expected a seed from 0 to below 2**32, got {shown(seed)}; choose another")


class Samples:
    """Images drawn from a deep model, a block at a time; `diverged` counts the chains that have none."""

    def __init__(
        self,
        chains: tuple[EBLVM, Schedule],
        model: EBLVM,
        posterior: Posterior | None,
        train: np.ndarray | None,
        *,
        seed: int = 0,
        grey: Grey = "refuse",
        use: str = "quality",
    ):
        check_seed(seed)
        as_pixels(np.zeros((1, *model.v.shape), np.uint8), "samples", grey)  # refused here, not after hours of chains
        self.model, self.posterior, self.train, self.seed = model, posterior, train, seed
        self.grey: Grey = grey
        self.chained, self.schedule = chains
        self.key, self.diverged = seed_keys((seed,), use)[0], 0

    def draw(self, count: int, progress: Callable[[int, int], object] | None = None) -> Iterator[Pixels]:
        """Given h, the posterior means of random training images, where there are any; else v and h jointly.

        Denoising takes pixels a little out of [0, 1]; they are clipped. Every block runs as many chains, so that they
        share a program.
        """
        block, self.diverged = min(count, _BLOCK), 0
        for begin in range(0, count, block):
            key = jax.random.fold_in(self.key, begin)
            if self.train is not None and self.posterior is not None:
                rows = np.random.default_rng([self.seed, begin]).integers(len(self.train), size=block)
                means = posterior_means(self.model, self.posterior, self.train[rows])
                samples = sample_v(key, self.chained, jnp.asarray(means), self.schedule, batch=block)
            else:
                samples = sample_joint(key, self.chained, block, self.schedule, batch=block)
            v, diverged = (np.asarray(x)[: count - begin] for x in (samples.v, samples.diverged))
            self.diverged += int(diverged.sum())
            if progress is not None:
                progress(min(begin + block, count), count)
            if not diverged.all():
                yield as_pixels(np.clip(v[~diverged], 0, 1), "samples", self.grey)
