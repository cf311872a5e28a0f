"""Out-of-distribution detection by a run's model: the rows of `vages evaluate RUN --ood DATA`.

DATA is converted to examples of the model. For a model of images in [0, 1], it is a dataset, a folder, an archive or a
file of images of any size (see `vages.data.converted_images`); for any other model, a toy or a file of rows of the
model's shape. Two sets are generated: `noise` is uniform, and `constant` has one value for a whole example. All are in
the data's units, and are standardized if the run's data are; log p(v) is reported in the data's units.
"""

import math
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Float64, PRNGKeyArray

from vages.app.runs.assessment import Assessment, Subject, held_out, some_rows, subject_of
from vages.app.runs.assessment_rows import Row, Sizes, Stage
from vages.app.runs.loaded import Run
from vages.data import IMAGE_SETS, TOYS, load_converted_images, load_test_rows, load_toy
from vages.data.freyface import SHAPE
from vages.domains import Categorical, Real
from vages.evaluation import Estimate, log_density, out_of_distribution
from vages.models import NoiseConditionalEBLVM
from vages.samplers.program import Progress
from vages.terminal import printable

MADE = ("noise", "constant")
_BLOCK = 128  # examples in a pass
_SAMPLES = 256  # of q for each log p(v), if h cannot be summed out
_FEW = 10  # the effective number of these below which log p(v) is underestimated
_LOOKED_AT = 10_000  # training examples that determine the range of the data
_ON_CPU = 200  # examples of each set of large images on a CPU

_log_density = eqx.filter_jit(log_density)
Rows = Float32[np.ndarray, "n ..."]


def load_others(run: Run, names: tuple[str, ...], examples: int, seed: int = 0) -> dict[str, Rows]:
    """Load the other data by name, converted for the run's model, with at most `examples` of each."""
    if run.data_has_context:
        raise ValueError(f"ood: expected a run without a context, got {run.path}; other data have none")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"ood: expected each name once, got {twice[0]!r} twice; leave one out")
    found = {name: run.standardized(_load(run, name, examples, seed)) for name in names}
    for name, rows in found.items():
        if len(rows) < 2:
            raise ValueError(
                f"ood: expected 2 examples or more of {name}, got {len(rows)}; name a file with more, or give a larger "
                "--examples"
            )
    return found


def examples_for(run: Run, asked: int | None) -> int:
    """Return how many examples of each set are used: `asked`, by default 1,000, or 200 large images on a CPU."""
    if asked is not None:
        return asked
    return _ON_CPU if run.is_of_images and run.model.v.size > 1000 and jax.default_backend() == "cpu" else 1000


def ood_subject(run: Run, noise: float | None) -> Subject:
    """Return the subject of a run; the default `noise` of a noise-conditional model is its lowest level."""
    lowest = isinstance(run.model, NoiseConditionalEBLVM) and noise is None
    return subject_of(run, run.model.sigma_min if lowest else noise)  # pyright: ignore[reportAttributeAccessIssue]


def assess_ood(
    run: Run,
    others: dict[str, Rows],
    *,
    examples: int,
    noise: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    stage: Stage = str,
) -> Assessment:
    """Return an assessment with the rows of `ood_rows`; `others` come from `load_others`."""
    began, subject, sizes = time.perf_counter(), ood_subject(run, noise), Sizes(examples=examples)
    stage(f"log density of {', '.join(others)}")
    rows = ood_rows(jax.random.key(seed), subject, others, examples, progress)
    minutes = (time.perf_counter() - began) / 60
    path = printable(run.path)
    return Assessment(path, run.step, rows, examples, subject.noise, sizes, seed, minutes, run.about_data)


def ood_rows(
    key: PRNGKeyArray, subject: Subject, others: dict[str, Rows], examples: int, progress: Progress | None = None
) -> list[Row]:
    """Return the AUROC of log p(v) and of typicality for each set of other data; all examples get the same noise."""
    for_train, for_test, for_noise, for_density = jax.random.split(key, 4)
    own = {"train": np.asarray(some_rows(for_train, subject.splits.train, examples))}
    own["test"] = np.asarray(held_out(for_test, subject.splits, examples))
    sets = [*own.values(), *others.values()]
    v = np.concatenate(sets).astype(np.float32)
    if subject.noise:
        v = v + subject.noise * np.asarray(jax.random.normal(for_noise, v.shape, jnp.float32))
    ends = np.cumsum([len(one) for one in sets])[:-1]
    found = _densities(for_density, subject, v, progress)
    units = subject.units
    if units is not None:
        found = found._replace(value=found.value - units.log_volume)
    said = (
        "" if units is None else f"; in the data's units, {units.log_volume:.6g} nats less than for standardized data"
    )
    train, test, *rest = (
        found._replace(value=value, ess=ess)
        for value, ess in zip(np.split(found.value, ends), np.split(found.ess, ends), strict=True)
    )
    name = "log p" if found.normalized else "log p̃"
    kind = "test" if len(subject.splits.test) else "training"
    rows = [_density_row(name, f"{kind} examples", test, subject.noise, said)]
    for other, density in zip(others, rest, strict=True):
        rows.append(_density_row(name, other, density, subject.noise, said))
        rows += _auroc_rows(name, other, train, test, density, kind)
    return rows


class _Densities(NamedTuple):
    """log p̃(v), the effective number of samples of q, whether it is exact, and whether it is normalized."""

    value: Float64[np.ndarray, "n"]
    ess: Float64[np.ndarray, "n"]
    exact: bool
    normalized: bool


def _densities(key: PRNGKeyArray, subject: Subject, v: Rows, progress: Progress | None) -> _Densities:
    """Compute log p̃(v) of all examples in blocks of equal size, which share one compiled program."""
    size = min(_BLOCK, len(v))
    padded = np.concatenate([v, np.repeat(v[-1:], -len(v) % size, axis=0)])
    found = []
    for i, block in enumerate(padded.reshape(-1, size, *v.shape[1:])):
        for_block = jax.random.fold_in(key, i)
        found.append(_log_density(for_block, subject.model, subject.posterior, jnp.asarray(block), samples=_SAMPLES))
        if progress is not None:
            progress(min((i + 1) * size, len(v)), len(v))
    joined = lambda parts: np.concatenate([np.asarray(part, np.float64) for part in parts])[: len(v)]
    value, ess = joined([one.value for one in found]), joined([one.ess for one in found])
    return _Densities(value, ess, bool(found[0].exact), bool(found[0].normalized))


def _density_row(name: str, of: str, density: _Densities, noise: float, said: str) -> Row:
    count, deviation = len(density.value), float(density.value.std(ddof=1))
    noisy = f" with noise of {noise:.3g}" if noise else ""
    means = f"mean in nats of {count:,} examples{noisy}, standard deviation {deviation:.4g}"
    if not density.exact:
        ess = float(np.median(density.ess))
        low = f", below {_FEW}: log p is underestimated" if ess < _FEW else ""
        means += f"; effective number of the {_SAMPLES} samples of q: {ess:.0f}{low}"
    return Row(f"{name}, {of}", *Estimate.of(density.value), f"{means}{said}")


def _auroc_rows(
    name: str, other: str, train: _Densities, test: _Densities, density: _Densities, kind: str
) -> list[Row]:
    titles = f"AUROC of {name}, {other}", f"AUROC of typicality, {other}"
    missing = sum(int(np.isnan(one.value).sum()) for one in (train, test, density))
    if missing:
        return [Row(title, None, None, f"none: the energy of {missing} examples is not a number") for title in titles]
    found = out_of_distribution(train.value, test.value, density.value)
    means = f"chance that it is less likely than {kind} examples", "chance that it is further from the training mean"
    return [
        Row(title, *area, f"{said}{_reading(area)}") for title, area, said in zip(titles, found, means, strict=True)
    ]


def _reading(area: Estimate) -> str:
    """Interpret an AUROC of one half or less, or one without overlap, whose error is 0."""
    if area.error == 0 and area.mean in (0, 1):
        return ": always, without overlap" if area.mean else ": never, without overlap"
    if area.mean + 3 * area.error < 0.5:
        return ": below one half, it is mistaken for the data"
    return ": one half, it is not distinguished from the data" if area.mean - 3 * area.error < 0.5 else ""


def image_shape(run: Run) -> tuple[int, int, int] | None:
    """Return the shape of a run's images in [0, 1], also if they are rows of Frey face; None for other examples."""
    train, shape = run.data.splits.train, run.model.v.shape
    if run.recipe.place == "freyface" and shape == (math.prod(SHAPE),):
        return (1, *SHAPE)
    if not run.is_of_images or not isinstance(run.model.v, Real):
        return None
    some = run.in_units(train[:_LOOKED_AT])
    near = 0.0 if run.units is None else 1e-6  # rounding error of standardizing 0 and 1 in float32 and converting back
    return shape if float(some.min()) >= -near and float(some.max()) <= 1 + near else None


def _load(run: Run, name: str, examples: int, seed: int) -> np.ndarray:
    """Load the examples in the data's units."""
    shape, images = run.model.v.shape, image_shape(run)
    if name in MADE:
        return _made(run, name, examples, seed, images)
    if images is not None:
        found = load_converted_images(name, images, examples, seed)
        return found.reshape(len(found), *shape)
    if name in TOYS:
        found = load_toy(name, seed).test
    elif name.partition(":")[0] in IMAGE_SETS:
        raise ValueError(
            f"ood: expected rows of the shape {shape} for {run.recipe.kind}, whose data are not images in [0, 1], got "
            f"{name}; save them in the form of the model's data, and name the .npy file"
        )
    elif not Path(name).exists():
        raise ValueError(
            f"ood: expected {', '.join(MADE)}, a toy ({', '.join(TOYS)}) or a .npy, .npz or .csv file, got {name!r}, "
            "which does not exist; check the path"
        )
    else:
        found = load_test_rows(name, dtype=np.float32 if run.units is None else np.float64)
        found = found.reshape(len(found), -1) if len(shape) == 1 else found
    if found.shape[1:] != shape:
        raise ValueError(
            f"ood: expected rows of the shape {shape} that the model of {run.path} has, got {found.shape[1:]} in "
            f"{name}; choose others"
        )
    return found[np.sort(np.random.default_rng(seed).permutation(len(found))[:examples])]


def _made(run: Run, name: str, examples: int, seed: int, images: tuple[int, ...] | None) -> np.ndarray:
    """Generate noise or constants, uniform in the range of the training data: [0, 1] for images, else for each entry.

    A constant image has one color; any other constant lies at the same fraction of the range of every entry.
    """
    generator, domain, constant = np.random.default_rng(seed), run.model.v, name == "constant"
    if isinstance(domain, Categorical):
        n, k = domain.shape
        return np.eye(k, dtype=np.float32)[generator.integers(k, size=(examples, 1 if constant else n))] * np.ones(
            (n, 1), np.float32
        )
    shape = domain.shape if images is None else images
    axes = (1,) * len(shape) if images is None else (shape[0], 1, 1)
    u = np.broadcast_to(generator.uniform(size=(examples, *(axes if constant else shape))), (examples, *shape))
    u = u.reshape(examples, *domain.shape)
    if not domain.continuous:
        return np.rint(u).astype(np.float32)
    train = run.in_units(run.data.splits.train[:_LOOKED_AT])
    low, high = (0.0, 1.0) if images is not None else (train.min(axis=0), train.max(axis=0))
    return low + (high - low) * u
