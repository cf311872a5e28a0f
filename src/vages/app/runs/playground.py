"""Contents of `vages explore` for a run of images: images, their latents, directions in latent space, draws."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, PRNGKeyArray

from vages.app.recipes.chains import chains_of
from vages.app.runs.completions import check_hidden
from vages.app.runs.loaded import Run
from vages.app.runs.watching import Chain, Flowed
from vages.models import EBLVM
from vages.posteriors import posterior_means
from vages.samplers import Held, Heun, SamplingWarning, Schedule, sample
from vages.samplers.program import Progress
from vages.training import seed_keys

Length = Literal["quick", "full"]
QUICK = 0.2  # fraction of the run's own schedule
QUICK_FLOW = 0.5  # fraction of the steps of Heun's method
TOGETHER = 4  # chains that are shown side by side
DIRECTIONS = 6
_FOR_DIRECTIONS = 2000  # training images


class Directions(NamedTuple):
    """Orthonormal directions in h along which posterior means vary most, with standard deviations and variance shares.

    `largest` is the largest absolute entry of any mean.
    """

    axes: Float[np.ndarray, "k ..."]
    deviations: Float[np.ndarray, "k"]
    shares: Float[np.ndarray, "k"]
    largest: float


@dataclass(frozen=True, eq=False)
class Playground:
    """A prepared run: `images` are its test images, or its training images if there are none."""

    run: Run
    model: EBLVM
    schedules: Mapping[Length, Schedule] | Mapping[Length, Heun]
    source: Literal["test", "train"]
    images: Float32[np.ndarray, "n channels height width"]
    labels: np.ndarray | None
    directions: Directions | None

    def mean(self, image: Float32[np.ndarray, "channels height width"]) -> Float32[np.ndarray, "..."]:
        """Return the mean of q(h | v)."""
        return posterior_means(self.run.model, self.run.posterior, image[None])[0]

    def moved(self, h: np.ndarray, amounts: np.ndarray) -> np.ndarray:
        """Return h moved along the directions by `amounts` in standard deviations."""
        assert self.directions is not None
        return (h + np.tensordot(amounts * self.directions.deviations, self.directions.axes, axes=1)).astype(h.dtype)

    def given(self, h: np.ndarray, seed: int, length: Length, *, count: int = 1, frames: int = 60) -> Chain | Flowed:
        """Draw from p(v | h). Draws with the same seed and count share their noise, and differ only in h."""
        rows = np.broadcast_to(h, (count, *h.shape))
        return self._chain(seed, length, count, frames, h=rows)

    def joint(self, seed: int, length: Length, *, frames: int = 60) -> Chain | Flowed:
        """Draw from p(v, h)."""
        return self._chain(seed, length, TOGETHER, frames)

    def completed(
        self, image: np.ndarray, hidden: Bool[np.ndarray, "height width"], seed: int, length: Length, frames: int = 60
    ) -> Chain | Flowed:
        """Draw the hidden pixels and h, given the other pixels. The values of hidden pixels are not used."""
        check_hidden("mask", hidden)
        hidden = np.broadcast_to(hidden, image.shape)
        known = np.where(hidden, np.float32(0.5), image)
        return self._chain(seed, length, TOGETHER, frames, mask=~hidden, known=known)

    def _chain(self, seed: int, length: Length, count: int, frames: int, **given: np.ndarray) -> Chain | Flowed:
        key, schedule = play_key(seed), self.schedules[length]
        if isinstance(schedule, Heun):
            return Flowed(lambda: _flowed(key, self.model, count, schedule, **given), schedule.steps)
        return Chain(key, self.model, schedule, count, frames=frames, room=self._room, **given)

    @cached_property
    def _room(self) -> int:
        """Number of moves of the longest schedule."""
        return max(len(one.moves().drift) for one in self.schedules.values() if isinstance(one, Schedule))


def play_key(seed: int) -> PRNGKeyArray:
    """Return the key of the chains of a seed."""
    return seed_keys((seed,), "playing")[0]


def playground(run: Run, *, progress: Progress | None = None) -> Playground:
    """Read the run's images, and compute the directions of its latents if it has any."""
    splits, labels = run.data.splits, run.data.labels
    source = "test" if len(splits.test) else "train"
    model, schedules = _flows(run) if run.recipe.flows else _chains(run)
    directions = None
    if run.has_latents:
        some = np.linspace(0, len(splits.train) - 1, min(len(splits.train), _FOR_DIRECTIONS)).astype(int)
        means = posterior_means(run.model, run.posterior, splits.train[some], progress=progress)
        directions = principal_directions(means, DIRECTIONS)
    own_labels = None if labels is None else getattr(labels, source)
    return Playground(run, model, schedules, source, getattr(splits, source), own_labels, directions)


def _chains(run: Run) -> tuple[EBLVM, dict[Length, Schedule]]:
    """Return the model and the schedules of the paper's annealed chains."""
    model, full = chains_of(run.recipe, run.model)
    _, quick = chains_of(run.recipe.with_(sampling=QUICK * run.settings.sampling), run.model)
    return model, {"quick": quick, "full": full}


def _flows(run: Run) -> tuple[EBLVM, dict[Length, Heun]]:
    """Return the model and the samplers of a noise-conditional run."""
    full = run.recipe.make_sampler(run.posterior)
    assert isinstance(full, Heun)
    return run.model, {"quick": replace(full, steps=max(2, round(QUICK_FLOW * full.steps))), "full": full}


def _flowed(
    key: PRNGKeyArray,
    model: EBLVM,
    count: int,
    heun: Heun,
    h: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    known: np.ndarray | None = None,
) -> Array:
    held = None if mask is None or known is None else Held(jnp.asarray(mask), jnp.asarray(known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # the page reports it
        return sample(key, model, count, h=None if h is None else jnp.asarray(h), held=held, sampler=heun).v


def principal_directions(means: Float[np.ndarray, "n ..."], count: int) -> Directions:
    """Return the first principal directions, at most `count`, each with its largest entry positive."""
    shape = means.shape[1:]
    flat = means.reshape(len(means), -1).astype(np.float64)
    _, singular, axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    axes = axes[:count] * np.sign(
        np.take_along_axis(axes[:count], np.abs(axes[:count]).argmax(axis=1)[:, None], axis=1)
    )
    variances = singular**2 / max(len(flat) - 1, 1)
    shares = variances / max(variances.sum(), np.finfo(np.float64).tiny)
    return Directions(axes.reshape(-1, *shape), np.sqrt(variances[:count]), shares[:count], float(np.abs(flat).max()))
