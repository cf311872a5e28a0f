"""Samples, interpolations and inpainted images from a run of a deep model of the paper."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.recipes.chains import chains_of
from vages.app.recipes.samples import check_seed
from vages.app.report import figure_png, sheet_png, trajectory_figure
from vages.app.runs.completions import SHOWN, chosen_examples, completions_png, hidden_pixels, masked
from vages.app.runs.draws import line_between
from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.app.runs.own_examples import Example, ends_of, own_example
from vages.bounds import IMAGES, Bounds, check_bounds, check_number
from vages.memory import check_memory
from vages.models import EBLVM
from vages.posteriors import posterior_means
from vages.samplers import LangevinSamples, Schedule, sample_joint, sample_v
from vages.samplers.program import Progress
from vages.terminal import printable
from vages.training import seed_keys

Latents = Literal["posterior", "joint"]
RATIOS = {"cifar10": 5.0, "celeba": 3.0}  # range along h in the paper, by dataset; else 1
_RATIO = Bounds(-1000, 1000, "1 begins at the image's own h")
_TALLEST = 60  # largest height over width that Matplotlib can draw


def sample_images(
    run: Run,
    out: Path | None = None,
    *,
    count: int = 100,
    latents: Latents = "posterior",
    sampling: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Kept:
    """Draw images given h, the posterior means of random training images (as in the paper), or jointly with h.

    Only joint draws are independent of the training images. `sampling` is the length of the schedule, by default the
    run's.
    """
    check_bounds(count=(count, IMAGES))
    model, schedule, key = _sampler(run, "samples", seed, sampling)
    _check_memory(run, count)
    arrays: dict[str, np.ndarray] = {}
    how = {"schedule": schedule, "progress": progress}
    given = run.has_latents and latents == "posterior"
    train = run.data.splits.train if given else None
    with new_folder(run, "samples", out) as folder:
        began = time.perf_counter()
        if train is not None:
            arrays["training_rows"] = np.random.default_rng(seed).integers(len(train), size=count)
            means = posterior_means(run.model, run.posterior, train[arrays["training_rows"]])
            samples = sample_v(key, model, means, **how)
            protocol = "v given h, the posterior means of random training images"
        else:
            samples = sample_joint(key, model, count, **how)
            protocol = "v and h jointly" if run.has_latents else "v alone, the model has no latents"
        arrays |= _arrays(samples)
        kept = keep(folder, "samples", run, arrays, _about(protocol, seed, schedule, arrays, began))
        shown = arrays["v"][:SHOWN]
        folder.write_bytes("samples.png", sheet_png(shown, columns=math.ceil(math.sqrt(len(shown)))))
        return kept


def interpolate(
    run: Run,
    out: Path | None = None,
    *,
    image: Example | None = None,
    between: tuple[Example, Example] | None = None,
    rows: int = 10,
    columns: int = 10,
    ratio: float | None = None,
    sampling: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Kept:
    """Draw images along h from ratio · m to −ratio · m, where m is the posterior mean of one image.

    With `between`, h goes from the posterior mean of one image to that of another. An image is a training image by
    number, or a file (see `own_example`); by default the seed chooses a training image. All chains have the same start
    and the same noise, and differ only in h. Each row of the picture is a chain and each column a snapshot; the last
    column is the denoised image.
    """
    if not run.has_latents:
        raise ValueError(f"run: expected a model with latents, got {run.path}, a plain EBM, which has none")
    check_bounds(rows=(rows, IMAGES), columns=(columns, IMAGES))
    model, schedule, key = _sampler(run, "interpolation", seed, sampling)
    if columns > (most := max(1, schedule.steps - 1)):
        raise ValueError(
            f"columns: expected 1 to {most} snapshots of {schedule.steps} steps, got {columns}; take fewer, or sample "
            "for longer"
        )
    _, height, width = run.model.v.shape
    if rows > (most := _TALLEST * columns * (width + 1) // (height + 1)):
        raise ValueError(f"rows: expected at most {most} for a picture of {columns} columns, got {rows}; take fewer")
    _check_memory(run, rows * columns)
    line = _ray(run, image, ratio, rows, seed) if between is None else _segment(run, between, image, ratio, rows)
    with new_folder(run, "interpolation", out) as folder:
        began = time.perf_counter()
        h = line.latents(posterior_means(run.model, run.posterior, line.images))
        how: dict[str, Any] = {"shared_noise": True, "record": columns, "progress": progress}
        samples = sample_v(key, model, h, schedule, **how)
        arrays = _arrays(samples) | {"trajectory": np.asarray(samples.trajectory), **line.arrays}
        steps = schedule.snapshots(columns).tolist()
        about = line.about | {"snapshots": steps}
        kept = keep(folder, "interpolation", run, arrays, about | _about(line.protocol, seed, schedule, arrays, began))
        labels = line.labels, [str(step) for step in steps]
        folder.write_bytes("interpolation.png", figure_png(trajectory_figure(arrays["trajectory"], *labels)))
        return kept


class _Line(NamedTuple):
    """A line in h: the images that define it, the function from their posterior means to h, and its description."""

    images: np.ndarray
    latents: Callable[[np.ndarray], np.ndarray]
    arrays: dict[str, np.ndarray]
    labels: list[str]
    protocol: str
    about: dict[str, Any]


def _ray(run: Run, image: Example | None, ratio: float | None, rows: int, seed: int) -> _Line:
    """Return the line from ratio · m to −ratio · m."""
    train = lambda: len(run.data.splits.train)
    chosen = int(np.random.default_rng(seed).integers(train())) if image is None else image
    own = own_example(run, chosen, "image")
    name = own.names[0]
    ratio = RATIOS.get(run.recipe.place or "", 1.0) if ratio is None else ratio
    check_number("ratio", ratio, _RATIO)
    factors = np.linspace(ratio, -ratio, rows, dtype=np.float32)
    return _Line(
        own.v,
        lambda mean: factors.reshape(-1, *[1] * (mean.ndim - 1)) * mean,
        {"factors": factors},
        [f"{factor:+.2f} m" for factor in factors],
        f"v given h = factor · m, m the posterior mean of {name}, the same noise for all",
        {"image": name, "ratio": ratio} | ({"training_row": int(str(chosen))} if str(chosen).isdecimal() else {}),
    )


def _segment(
    run: Run, between: tuple[Example, Example], image: Example | None, ratio: float | None, rows: int
) -> _Line:
    """Return the line from the posterior mean of one image to that of another."""
    for name, value in (("image", image), ("ratio", ratio)):
        if value is not None:
            raise ValueError(f"{name}: expected none with between, got {value}; leave one of them out")
    images, about = ends_of(run, between)
    along = np.linspace(0, 1, rows, dtype=np.float32)
    first, second = about["between"]
    return _Line(
        images,
        lambda means: line_between(means, along),
        {"along": along, "ends": images},
        [f"{share:.2f}" for share in along],
        f"v given h on the line from the posterior mean of {first} to that of {second}, the same noise for all",
        about,
    )


def inpaint(
    run: Run,
    out: Path | None = None,
    *,
    file: str | Path | None = None,
    count: int | None = None,
    tries: int = 3,
    mask: str = "half",
    sampling: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Kept:
    """Draw the hidden pixels of test images (training images if there are none), and h, given the other pixels.

    The values of hidden pixels are not used. `file` gives other images (see `own_examples`), and `mask` the hidden
    pixels (see `hidden_pixels`). Each image is completed `tries` times.
    """
    check_bounds(tries=(tries, IMAGES))
    model, schedule, key = _sampler(run, "inpainting", seed, sampling)
    hidden = hidden_pixels(mask, run.model.v.shape)
    originals, source, rows, named = chosen_examples(run, file, count, seed)
    _check_memory(run, len(originals) * tries)
    with new_folder(run, "inpainting", out) as folder:
        began = time.perf_counter()
        known = np.tile(masked(originals, hidden), (tries, 1, 1, 1))
        samples = sample_joint(key, model, len(known), schedule, mask=~hidden, known=known, progress=progress)
        arrays = {name: x.reshape(tries, len(originals), *x.shape[1:]) for name, x in _arrays(samples).items()}
        arrays |= {"originals": originals, "hidden": hidden, **rows}
        protocol = f"hidden pixels {'and h jointly, ' if run.has_latents else ''}given the known pixels"
        about = {"mask": printable(mask), "images": source, "tries": tries} | named
        kept = keep(folder, "inpainting", run, arrays, about | _about(protocol, seed, schedule, arrays, began))
        folder.write_bytes("inpainting.png", completions_png(originals, hidden, arrays["v"]))
        return kept


def check_images(run: Run) -> None:
    """Raise ValueError unless the run uses the paper's sampler."""
    if run.recipe.annealed is None:
        raise ValueError(
            f"run: expected the run of a deep model, got {run.path}, of {run.recipe.kind}; 'vages sample' draws from it"
        )


def _sampler(run: Run, use: str, seed: int, sampling: float | None) -> tuple[EBLVM, Schedule, PRNGKeyArray]:
    """Return the model, the schedule and the key of chains for one use."""
    check_seed(seed)
    check_images(run)
    recipe = run.recipe.with_sampling(sampling)
    return *chains_of(recipe, run.model), seed_keys((seed,), use)[0]


def _check_memory(run: Run, images: int) -> None:
    """Raise ValueError if the images and their h do not fit in memory, on the device and as a copy to be written."""
    one = math.prod(run.model.v.shape) + math.prod(run.model.h.shape)
    check_memory({"images": 2 * 4 * images * one}, "ask for fewer")


def _arrays(samples: LangevinSamples) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(samples, name)) for name in ("v", "h", "diverged")}


def _about(protocol: str, seed: int, schedule: Schedule, arrays: dict[str, np.ndarray], began: float) -> dict[str, Any]:
    diverged = arrays["diverged"]
    return {
        "protocol": protocol,
        "seed": seed,
        "schedule": {"steps": schedule.steps, **asdict(schedule)},
        "diverged chains": {"count": int(diverged.sum()), "of": diverged.size},
        "seconds": time.perf_counter() - began,
    }
