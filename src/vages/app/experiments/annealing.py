"""How far the paper's annealed Langevin dynamics move from their start, with the exact score.

The images are replaced by a Gaussian with their mean and covariance. Its denoisers are linear, so chains stay Gaussian
along each principal direction, and the samples' mean and variance follow a recursion without network or Monte Carlo.
"""

from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.recipes.deep import sampler
from vages.app.report import image_grid
from vages.app.settings import CELEBA, CIFAR10, DIGITS, DeepSettings
from vages.data import load_images
from vages.samplers import Schedule

_GRAY = 0.5  # mean of each pixel at the start of the chains, where the variance is 1
_SHOWN = 40
_COLORS = ("red", "green", "blue")


@dataclass(frozen=True)
class Settings:
    """The models whose samplers are compared, and how many images the Gaussian is fitted to."""

    recipes: tuple[DeepSettings, ...]
    images: int = 2000


PAPER = Settings((CIFAR10, CELEBA))
QUICK = Settings((DIGITS,), images=1000)


class Gaussian(NamedTuple):
    """A Gaussian by its mean and principal directions, widest first."""

    mean: Float[np.ndarray, "d"]
    directions: Float[np.ndarray, "k d"]
    variances: Float[np.ndarray, "k"]


class Ends(NamedTuple):
    """The samples along each direction: mean relative to the data's, and variance."""

    offset: Float[np.ndarray, "k"]
    variance: Float[np.ndarray, "k"]


def run(quick: bool, seed: int, say: Say) -> Outcome:
    """Compare the paper's sampler with one that starts at the noise level of the widest direction."""
    settings = QUICK if quick else PAPER
    measurements, claims, figures = {}, [], {}
    for recipe in settings.recipes:
        images = load_images(recipe.data, seed=seed).splits.train[: settings.images]
        data, panels = fitted(images.reshape(len(images), -1)), {"data": images[:_SHOWN]}
        ways = {"the paper's sampler": recipe, "from high noise": from_high_noise(recipe, data)}
        for way, one in ways.items():
            name = f"{recipe.data}, {way}"
            ends = chain_ends(one, data.variances, data.directions @ (_GRAY - data.mean))
            found = compare(one, data, ends) | colors(data, ends, len(images[0]))
            measurements[name] = found
            say(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()))
            claims += verdicts(name, found)
            panels[way] = draw(data, ends, images.shape[1:], seed)
        figures[recipe.data] = image_grid(panels)
    about = {"recipes": [asdict(recipe) for recipe in settings.recipes], "images": settings.images}
    return Outcome(about, claims, measurements, figures)


def fitted(rows: Float[np.ndarray, "n d"]) -> Gaussian:
    """The Gaussian with the mean and covariance of the rows."""
    mean = rows.mean(axis=0, dtype=np.float64)
    centered = rows - mean
    squares, weights = np.linalg.eigh(centered @ centered.T)
    found = np.flatnonzero(squares > 1e-6 * squares[-1])[::-1]  # the rest is zero up to rounding
    directions = weights[:, found].T @ centered / np.sqrt(squares[found])[:, None]
    return Gaussian(mean, directions, squares[found] / len(rows))


def from_high_noise(recipe: DeepSettings, data: Gaussian) -> DeepSettings:
    """Return the recipe with noise up to at least the widest direction's deviation, in training and sampling."""
    widest = float(np.sqrt(data.variances[0]))
    hot = (widest / recipe.sigma_base) ** 2
    return replace(recipe, sigma_end=max(recipe.sigma_end, widest), top_temperature=max(recipe.top_temperature, hot))


def chain_ends(
    recipe: DeepSettings,
    variances: Float[np.ndarray, "k"],
    offset: Float[np.ndarray, "k"],
    *,
    start: float = 1.0,
    error: float = 0.0,
) -> Ends:
    """Return mean and variance of chains that start at `offset` from the mean with variance `start`.

    The denoiser of level σ shrinks a coordinate of variance λ towards its mean by λ / (λ + σ²), and adds `error`. Its
    level is that of the noise in the chain, clipped to the levels of training.
    """
    schedule: Schedule = sampler(recipe).schedule
    rate = schedule.step_size**2 / (2 * recipe.sigma_base**2)
    variance, noise = np.full(len(variances), start), start  # `noise`: the variance where the data have none

    def pull() -> Float[np.ndarray, "k"]:
        level = np.clip(noise, recipe.sigma_begin**2, recipe.sigma_end**2)
        return level / (variances + level)

    for temperature in schedule.temperatures():
        added = temperature * schedule.step_size**2
        shrunk = 1 - rate * pull()
        offset, variance = shrunk * offset + rate * error, shrunk**2 * variance + added
        noise = (1 - rate) ** 2 * noise + added
    shrunk = 1 - pull()  # the last step denoises
    return Ends(shrunk * offset + error, shrunk**2 * variance)


def compare(recipe: DeepSettings, data: Gaussian, ends: Ends) -> dict[str, float]:
    """Compare samples with the data, and describe chains along the widest direction."""
    mean = data.mean + ends.offset @ data.directions
    spread = lambda mean, variances: float(np.sqrt(mean.var() + variances.sum() / mean.size))
    widest = data.variances[:1]
    along = lambda offset, error: float(chain_ends(recipe, widest, np.array([offset]), error=error).offset[0])
    return {
        "mean pixel over the data's": float(mean.mean() / data.mean.mean()),
        "spread of pixels over the data's": spread(mean, ends.variance) / spread(data.mean, data.variances),
        "standard deviation of the widest direction": float(np.sqrt(widest[0])),
        "share of the start's distance that is left there": along(1.0, 0.0),
        "shift of samples there by an error of 1 in the denoiser": along(0.0, 1.0),
    }


def colors(data: Gaussian, ends: Ends, channels: int) -> dict[str, float]:
    """Return the mean of each color, and how much the brightness differs between images relative to the data.

    Images have their channels first.
    """
    brightness = data.directions.mean(1) ** 2  # squared, of a unit along each direction
    spread = np.sqrt((brightness @ ends.variance) / (brightness @ data.variances))
    found = {"spread of brightness over the data's": float(spread)}
    if channels == len(_COLORS):
        means = {"samples": data.mean + ends.offset @ data.directions, "data": data.mean}
        for kind, mean in means.items():
            found |= {f"mean {_COLORS[i]}, {kind}": float(mean.reshape(3, -1)[i].mean()) for i in range(3)}
    return found


def verdicts(name: str, found: dict[str, float]) -> list[Claim]:
    """Return the claims that hold for a good sampler with the exact score."""
    left = found["share of the start's distance that is left there"]
    return [
        Claim.at_most(f"{name}: chains forget their start (share of its distance that is left)", abs(left), 0.05),
        Claim.at_most(
            f"{name}: samples are as bright as the data (distance of the mean pixel's ratio from 1)",
            abs(found["mean pixel over the data's"] - 1),
            0.05,
        ),
        *Claim.within(
            f"{name}: the spread of pixels over the data's", found["spread of pixels over the data's"], 0.8, 1.25
        ),
    ]


def draw(data: Gaussian, ends: Ends, shape: tuple[int, ...], seed: int) -> Float[np.ndarray, "n ..."]:
    """Draw samples of the chains, with the same noise for all ways of sampling."""
    noise = np.random.default_rng(seed).standard_normal((_SHOWN, len(ends.offset)))
    rows = data.mean + (ends.offset + np.sqrt(ends.variance) * noise) @ data.directions
    return rows.reshape(-1, *shape).clip(0, 1)
