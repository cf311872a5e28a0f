"""Pictures from a deep run: samples, interpolations and inpainted images."""

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from vages.app.recipes.chains import chains_of
from vages.app.recipes.samples import check_seed
from vages.app.report import figure_png, sheet_png, trajectory_figure
from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.bounds import IMAGES, Bounds, check_bounds, check_number
from vages.files import read_image, read_npy
from vages.memory import check_memory
from vages.models import EBLVM
from vages.posteriors import posterior_means
from vages.samplers import LangevinSamples, Schedule, sample_joint, sample_v
from vages.samplers.program import Progress
from vages.terminal import printable
from vages.training import seed_keys

Latents = Literal["posterior", "joint"]
RATIOS = {"cifar10": 5.0, "celeba": 3.0}  # how far the paper walks along h, by the name of the images; else 1
_RATIO = Bounds(-1000, 1000, "1 begins at the image's own h")
_TALLEST = 60  # times the width: a picture of a walk that Matplotlib can still draw
SHOWN = 1024  # images in a picture, at most
HIDDEN = ("half", "left", "centre")


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
    """Draw images, given h = the posterior means of random training images (the paper's way), or jointly with h.

    Only what is drawn jointly owes nothing to any image. `sampling` is the length of the schedule, the run's unless
    given.
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
    image: int | None = None,
    rows: int = 10,
    columns: int = 10,
    ratio: float | None = None,
    sampling: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Kept:
    """Draw images along h from ratio · m to −ratio · m, where m is the posterior mean of one training image.

    All chains have the same start and the same noise, and differ by h alone. A row of the picture is a chain, a
    column a snapshot, the last of them the denoised image. Without an `image`, the seed chooses one.
    """
    if not run.has_latents:
        raise ValueError(f"run: expected a model with latents, got {run.path}, a plain EBM, which has none to walk in")
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
    train = run.data.splits.train
    row = int(np.random.default_rng(seed).integers(len(train))) if image is None else image
    if not 0 <= row < len(train):
        raise ValueError(
            f"image: expected the number of a training image, 0 to {len(train) - 1}, got {row}; choose one"
        )
    ratio = RATIOS.get(run.recipe.place or "", 1.0) if ratio is None else ratio
    check_number("ratio", ratio, _RATIO)
    factors = np.linspace(ratio, -ratio, rows, dtype=np.float32)
    with new_folder(run, "interpolation", out) as folder:
        began = time.perf_counter()
        mean = posterior_means(run.model, run.posterior, train[row : row + 1])
        how: dict[str, Any] = {"shared_noise": True, "record": columns, "progress": progress}
        samples = sample_v(key, model, factors.reshape(-1, *[1] * (mean.ndim - 1)) * mean, schedule, **how)
        arrays = _arrays(samples) | {"trajectory": np.asarray(samples.trajectory), "factors": factors}
        steps = schedule.snapshots(columns).tolist()
        protocol = "v given h = factor · m, m the posterior mean of one training image, one noise for all"
        about = {"training_row": row, "ratio": ratio, "snapshots": steps}
        kept = keep(folder, "interpolation", run, arrays, about | _about(protocol, seed, schedule, arrays, began))
        labels = [f"{factor:+.2f} m" for factor in factors], [str(step) for step in steps]
        folder.write_bytes("interpolation.png", figure_png(trajectory_figure(arrays["trajectory"], *labels)))
        return kept


def inpaint(
    run: Run,
    out: Path | None = None,
    *,
    count: int = 10,
    tries: int = 3,
    mask: str = "half",
    sampling: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Kept:
    """Draw the hidden pixels of test images (training images where there are none), and h, given the other pixels.

    Nothing that is drawn has seen a hidden pixel. `mask` is what is hidden (see `hidden_pixels`); each image is
    completed `tries` times.
    """
    check_bounds(count=(count, IMAGES), tries=(tries, IMAGES))
    model, schedule, key = _sampler(run, "inpainting", seed, sampling)
    _check_memory(run, count * tries)
    splits = run.data.splits
    source = "test" if len(splits.test) else "train"
    images = getattr(splits, source)
    hidden = hidden_pixels(mask, images.shape[1:])
    if count > len(images):
        raise ValueError(f"count: expected at most the {len(images)} {source} images, got {count}; ask for fewer")
    with new_folder(run, "inpainting", out) as folder:
        began = time.perf_counter()
        rows = np.sort(np.random.default_rng(seed).permutation(len(images))[:count])
        originals = images[rows]
        masked = np.where(hidden, np.float32(0.5), originals)
        known = np.tile(masked, (tries, 1, 1, 1))
        samples = sample_joint(key, model, len(known), schedule, mask=~hidden, known=known, progress=progress)
        arrays = {name: array.reshape(tries, count, *array.shape[1:]) for name, array in _arrays(samples).items()}
        arrays |= {"originals": originals, "hidden": hidden, f"{source}_rows": rows}
        protocol = f"hidden pixels {'and h jointly, ' if run.has_latents else ''}given the known pixels"
        about = {"mask": printable(mask), "images": source, "tries": tries}
        kept = keep(folder, "inpainting", run, arrays, about | _about(protocol, seed, schedule, arrays, began))
        sheet = np.stack([originals, masked, *arrays["v"]])[:SHOWN, : max(1, SHOWN // (2 + tries))]
        sheet, columns = sheet.reshape(-1, *originals.shape[1:]), sheet.shape[1]
        folder.write_bytes("inpainting.png", sheet_png(sheet, columns=columns))
        return kept


def hidden_pixels(mask: str, shape: tuple[int, ...]) -> Bool[np.ndarray, "channels height width"]:
    """True where an image (channels, height, width) is hidden.

    `half` is the lower half, `left` the left half, `centre` the middle half of rows and columns. A .png file is white
    where pixels are hidden, a .npy file true or 1; it is of shape (height, width), or the image's.
    """
    _, height, width = shape
    hidden = np.zeros((height, width), bool)
    if mask == "half":
        hidden[height // 2 :] = True
    elif mask == "left":
        hidden[:, : width // 2] = True
    elif mask == "centre":
        hidden[height // 4 : height - height // 4, width // 4 : width - width // 4] = True
    elif mask.lower().endswith(".png"):
        hidden = read_image(Path(mask)).mean(axis=0) > 127
    elif mask.lower().endswith(".npy"):
        array = read_npy(Path(mask), 2**26)
        if not np.isin(array, (0, 1)).all():
            raise ValueError(f"{mask}: expected true or 1 where pixels are hidden, else false or 0, got other numbers")
        hidden = array.astype(bool)
    else:
        raise ValueError(f"mask: expected {', '.join(HIDDEN)}, or a file that ends in .npy or .png, got {mask!r}")
    if hidden.shape not in (shape, shape[1:]):
        raise ValueError(f"{mask}: expected a mask of {height} rows and {width} columns, got the shape {hidden.shape}")
    if hidden.all() or not hidden.any():
        raise ValueError(
            f"{mask}: expected both hidden and known pixels, got {'no known' if hidden.all() else 'no hidden'} ones"
        )
    return np.broadcast_to(hidden, shape)


def check_images(run: Run) -> None:
    """Raise unless the run draws images by the paper's sampler."""
    if run.recipe.annealed is None:
        raise ValueError(
            f"run: expected the run of a deep model, got {run.path}, that of {run.recipe.kind}; 'vages sample' draws "
            "from it"
        )


def _sampler(run: Run, use: str, seed: int, sampling: float | None) -> tuple[EBLVM, Schedule, PRNGKeyArray]:
    """The model, the schedule and the key of chains for one use."""
    check_seed(seed)
    check_images(run)
    recipe = run.recipe if sampling is None else run.recipe.with_(sampling=sampling)
    return *chains_of(recipe, run.model), seed_keys((seed,), use)[0]


def _check_memory(run: Run, images: int) -> None:
    """Raise unless so many images fit, with their h, as the device has them and as they are written."""
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
