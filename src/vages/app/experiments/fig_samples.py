"""Samples of deep EBLVMs: h from the posterior of training images, as in the paper, and h sampled with v."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.experiments.kept_runs import iterations_of, kept_arrays, kept_runs
from vages.app.recipes import Examples
from vages.app.report import image_grid
from vages.app.runs import sample_images
from vages.app.runs.gallery import Latents
from vages.app.settings import CELEBA, CIFAR10, DIGITS, MNIST, DeepSettings
from vages.evaluation import Nearness, logistic_regression
from vages.evaluation.nearest import nearest_distances


@dataclass(frozen=True)
class Settings:
    """The recipes to train, and the number of images to draw in each of the two ways."""

    recipes: tuple[DeepSettings, ...]
    count: int = 200


PAPER = Settings((MNIST, CIFAR10, CELEBA))
QUICK = Settings((replace(DIGITS, steps=4000),), count=100)
NEAR = "distance to the nearest training image over a test image's"
FAR = 1.5  # noise with the spread of each pixel is at 2.1 on the small digits
WAYS: dict[Latents, str] = {"posterior": "h from training images", "joint": "h sampled with v"}
DIGITS_OF_SOME_KIND = ("mnist", "digits")  # images that a linear classifier can tell apart


def run(quick: bool, seed: int, say: Say, runs: Path) -> Outcome:
    """Draw from each model in both ways; count diverged chains, compare with the data and look for copies."""
    settings = QUICK if quick else PAPER
    recipes = tuple(replace(recipe, seed=seed) for recipe in settings.recipes)
    claims, measurements, figures = [], {}, {}
    models = kept_runs(recipes, runs, say)
    for model in models:
        name, images = model.settings.data, model.data
        panels = {"data": images.splits.test[:100]}
        for way, title in WAYS.items():
            kept = sample_images(model, count=settings.count, latents=way, seed=seed)
            arrays = kept_arrays(kept, "samples")
            samples, diverged = arrays["v"], arrays["diverged"]
            panels[title] = samples[:100]
            found = {} if diverged.all() else compare(samples[~diverged], images, by_class=name in DIGITS_OF_SOME_KIND)
            found |= {"diverged": float(diverged.mean()), "seconds": kept.result["seconds"]}
            measurements[f"{name}, {title}"] = {"iterations": model.step, **found}
            say(f"{name}, {title}: " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()))
            if NEAR not in found and not diverged.all():
                say(f"{name}, {title}: most test images have a duplicate in training, so copies cannot be detected")
            claims += verdicts(f"{name} after {iterations_of(model)} iterations, {title}", found)
        figures[name] = image_grid(panels)
    about = {"recipes": [asdict(model.settings) for model in models], "count": settings.count}
    return Outcome(about, claims, measurements, figures)


def compare(samples: Float[np.ndarray, "n ..."], images: Examples, *, by_class: bool) -> dict[str, float]:
    """Return numbers that together separate good samples from bad ones."""
    train, test = images.splits.train, images.splits.test[: len(samples)]
    found = {
        "mean pixel over the data's": float(samples.mean() / train.mean()),
        "spread of pixels over the data's": float(samples.std() / train.std()),
    }
    near = Nearness(*(float(np.median(nearest_distances(these, train))) for these in (samples, test)))
    if near.ratio is not None:
        found[NEAR] = near.ratio
    if by_class and images.labels is not None:
        sure, classes = confidence(samples, test, train, images.labels.train)
        found |= {"a classifier's confidence over that in test images": sure, "classes": classes}
    return found


def confidence(
    samples: Float[np.ndarray, "n ..."],
    test: Float[np.ndarray, "k ..."],
    train: Float[np.ndarray, "m ..."],
    labels: Int[np.ndarray, "m"],
    rows: int = 5000,
) -> tuple[float, float]:
    """Return the confidence of a linear pixel classifier in samples over that in test images, and a number of classes.

    The number of classes is exp(entropy) of their shares in the predictions for the samples.
    """
    flat = lambda images: images.reshape(len(images), -1)
    weights, _ = logistic_regression(flat(train[:rows]), labels[:rows])

    def probabilities(images):
        scores = flat(images) @ weights[:-1] + weights[-1]
        scores = np.exp(scores - scores.max(1, keepdims=True))
        return scores / scores.sum(1, keepdims=True)

    seen = probabilities(samples)
    shares = np.bincount(seen.argmax(1)) / len(seen)
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)))
    return float(seen.max(1).mean() / probabilities(test).max(1).mean()), float(np.exp(entropy))


def verdicts(name: str, found: dict[str, float]) -> list[Claim]:
    """Return the claims that hold for good samples.

    A linear classifier is sure of noise too, so there are no claims about its predictions for images that are as far
    from the data as noise.
    """
    if found["diverged"] == 1:
        return [Claim.at_most(f"{name}: few chains diverge (their share)", 1.0, 0.05)]
    claims = [
        Claim.at_most(f"{name}: few chains diverge (their share)", found["diverged"], 0.05),
        *Claim.within(
            f"{name}: the spread of pixels over the data's", found["spread of pixels over the data's"], 0.8, 1.25
        ),
    ]
    if NEAR in found:
        claims += [
            Claim.at_least(f"{name}: no copies ({NEAR})", found[NEAR], 0.5),
            Claim.at_most(f"{name}: no noise ({NEAR})", found[NEAR], FAR),
        ]
    if "classes" in found and found.get(NEAR, 0.0) <= FAR:
        sure = found["a classifier's confidence over that in test images"]
        claims += [
            Claim.at_least(f"{name}: recognisable (a classifier's confidence over that in test images)", sure, 0.8),
            Claim.at_least(f"{name}: of all classes (their number, as exp of the entropy)", found["classes"], 7.0),
        ]
    return claims
