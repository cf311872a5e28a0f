"""Table 1: the FID of VaGES-MDSM and of MDSM without latents on CIFAR10, and of VaGES-MDSM on CelebA.

Both runs on CIFAR10 have the same length. The last averaged weights are evaluated by the paper's protocol: its sampler
with all steps, and h the posterior means of random training images. The paper selects the best of 60 checkpoints, and
draws 50,000 samples. Here, 10,000 samples are drawn, which raises the FID by about 2.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vages.app.experiments.claims import Claim, Outcome, Say
from vages.app.experiments.kept_runs import kept_runs, lasting_recoveries, told_iterations
from vages.app.runs import Run
from vages.app.runs.image_quality import evaluate_run, samples_of
from vages.app.runs.kept_quality import find_quality, keep_quality
from vages.app.settings import CELEBA, CIFAR10, DIGITS, DeepSettings
from vages.evaluation import Statistics, fid, metric_name
from vages.training import RunFolder


class Published(NamedTuple):
    """The paper's number, and how far ours may be above it."""

    fid: float
    deviation: float


@dataclass(frozen=True)
class Settings:
    """The recipes to train, the number of samples to evaluate, and the features."""

    recipes: tuple[DeepSettings, ...]
    count: int = 10_000
    features: Literal["inception", "pixels"] = "inception"


_RATES: dict[str, Any] = {"learning_rate": 1e-4, "posterior_learning_rate": 2e-4, "warmup": 2000}
_CIFAR10 = replace(CIFAR10, flips=True, **_RATES)
_DIGITS = replace(DIGITS, steps=4000)
PAPER = Settings((_CIFAR10, replace(_CIFAR10, method="mdsm"), replace(CELEBA, steps=40_000, **_RATES)))
QUICK = Settings((_DIGITS, replace(_DIGITS, method="mdsm")), count=500, features="pixels")
_TRAINING = ("batch", "learning_rate", "warmup", "flips", "ema")  # settings of both methods that change an FID
_SHARED = ("metric", "iterations", "training images", "weights", *(name.replace("_", " ") for name in _TRAINING))
PUBLISHED = {
    ("cifar10", "vages-mdsm"): Published(28.93, 1.91),
    ("cifar10", "mdsm"): Published(31.7, 0.0),
    ("celeba", "vages-mdsm"): Published(31.53, 0.0),
}
DIVERGED = 0.05  # largest share of the chains that may diverge
TITLES = {"vages-mdsm": "VaGES-MDSM", "mdsm": "MDSM without latents"}


def run(quick: bool, seed: int, say: Say, runs: Path) -> Outcome:
    """Evaluate the samples of each run, and compare them with the paper's numbers and with each other."""
    settings = QUICK if quick else PAPER
    recipes = tuple(replace(recipe, seed=seed) for recipe in settings.recipes)
    table, models = {}, kept_runs(recipes, runs, say)
    for model in models:
        table[model.settings.data, model.settings.method] = row = measure(model, settings, seed)
        say(f"{model.settings.data}, {TITLES[model.settings.method]}: {row['metric']} {row['fid']:.2f}")
    for data, why in unlike(table).items():
        say(f"{data}: the two methods are not compared, as they differ in {why}")
    about = {
        "recipes": [asdict(model.settings) for model in models],
        "count": settings.count,
        "features": settings.features,
    }
    named = {f"{data}, {TITLES[method]}": row for (data, method), row in table.items()}
    return Outcome(about, verdicts(table, settings.features), {"table": named})


def verdicts(table: dict[tuple[str, str], dict[str, Any]], features: str) -> list[Claim]:
    """Compare each number with the paper's, and the model with latents with the one without."""
    claims = []
    for (data, method), row in table.items():
        if features == "inception" and (data, method) in PUBLISHED:
            paper = PUBLISHED[data, method]
            told = f"{paper.fid} ± {paper.deviation}" if paper.deviation else f"{paper.fid}"
            claims.append(
                Claim.at_most(
                    f"{data}: the {row['metric']} of {TITLES[method]} after {_told(row)} iterations on "
                    f"{row['training images']:,} images reaches the paper's FID, {told}",
                    _fid_of_most(row),
                    paper.fid + paper.deviation,
                )
            )
        if method == "mdsm" and (data, "vages-mdsm") in table and data not in unlike(table):
            ours = table[data, "vages-mdsm"]
            said = (
                f"{data}: latents help ({row['metric']} of {TITLES['vages-mdsm']} after {_told(ours)} iterations over "
                f"that of {TITLES[method]} after {_told(row)} iterations)"
            )
            claims.append(Claim.below(said, _fid_of_most(ours) / _fid_of_most(row), 1.0))
    return claims


def unlike(table: dict[tuple[str, str], dict[str, Any]]) -> dict[str, str]:
    """Return, for data with both methods, what makes their numbers incomparable, if anything does."""
    found = {}
    for data, row in ((data, row) for (data, method), row in table.items() if method == "mdsm"):
        other = table.get((data, "vages-mdsm"), row)
        if differing := [name for name in _SHARED if row.get(name) != other.get(name)]:
            found[data] = ", ".join(f"{name} ({other.get(name)} and {row.get(name)})" for name in differing)
    return found


def _fid_of_most(row: dict[str, Any]) -> float:
    """Return the FID, or NaN if too many chains diverged, as the rest is then a selection."""
    return row["fid"] if row.get("diverged", 0) <= DIVERGED * row.get("of", 0) else math.nan


def _told(row: dict[str, Any]) -> str:
    return told_iterations(row["iterations"], row.get("recoveries", []))


def measure(run: Run, settings: Settings, seed: int) -> dict[str, Any]:
    """Return the FID of a run's samples and what it depends on. An earlier result in the run folder is reused."""
    recoveries = lasting_recoveries(RunFolder.events(run.path))
    about = {"iterations": run.step, "training images": len(run.data.splits.train), "weights": run.weights}
    about |= {name.replace("_", " "): getattr(run.settings, name) for name in _TRAINING}
    about |= {"recoveries": [{name: event[name] for name in ("problem", "to", "rate")} for event in recoveries]}
    if settings.features == "pixels":
        return {**about, **pixel_distance(run, settings.count, seed)}
    quality = find_quality(run, count=settings.count, protocol="paper", seed=seed)
    if quality is None:
        found, _ = evaluate_run(run, count=settings.count, protocol="paper", seed=seed)
        quality = found.as_json()
        keep_quality(run, quality)
    kept = ("metric", "fid", "extrapolated", "kid", "real", "n", "reference")
    sampling = {name: quality["sampling"][name] for name in ("protocol", "evaluations", "diverged", "of")}
    return {**about, **{name: quality[name] for name in kept}, **sampling}


def pixel_distance(run: Run, count: int, seed: int) -> dict[str, Any]:
    """Return the Fréchet distance of pixels, for small images that need no network."""
    drawn = samples_of(run, count, "paper", None, seed, "replicate")
    samples = np.concatenate([pixels[:, 0] for pixels in drawn.draw(count)]) / 255.0
    real = run.data.splits.train
    statistics = [pixel_statistics(x.reshape(len(x), -1)) for x in (samples, real)]
    metric = metric_name("Fréchet distance of pixels", len(samples))
    return {"metric": metric, "fid": fid(*statistics), "n": len(samples), "diverged": drawn.diverged, "of": count}


def pixel_statistics(rows: np.ndarray) -> Statistics:
    """Mean and covariance of rows of pixels."""
    rows = rows.astype(np.float64)
    features = rows[:0].astype(np.float32)
    return Statistics(len(rows), rows.mean(0), np.cov(rows, rowvar=False), features, "", "pixels")
