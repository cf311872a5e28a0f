"""Pictures from a run of a noise-conditional model of images: samples, completions, and the way between two images.

All are drawn by Heun's method, which begins with noise of the highest level and ends with an image.
"""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vages.app.recipes.samples import check_seed
from vages.app.report import sheet_png
from vages.app.runs.draws import watched
from vages.app.runs.gallery import SHOWN, hidden_pixels
from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.bounds import IMAGES, check_bounds
from vages.memory import check_memory
from vages.samplers import Held, Heun, Samples, interpolate, sample
from vages.terminal import printable
from vages.training import seed_keys


def draw_images(
    run: Run,
    out: Path | None = None,
    *,
    count: int = 100,
    label: int | None = None,
    guidance: float | None = None,
    seed: int = 0,
) -> Kept:
    """Draw images, of all classes or of one; with `guidance`, further from the others than the data are."""
    check_bounds(count=(count, IMAGES))
    key, heun = _prepared(run, "samples", seed, count)
    context = None if label is None else {"label": jnp.full(count, label, jnp.int32)}
    heun = replace(heun, guidance=guidance)
    with new_folder(run, "samples", out) as folder:
        began = time.perf_counter()
        drawn, warned = watched(lambda: sample(key, run.model, count, sampler=heun, context=context))
        told = {"label": label, "guidance": guidance} if label is not None else {}
        protocol = (
            f"Heun's method, {heun.steps} steps{'' if label is None else f', given the label {label}'}{_latents(run)}"
        )
        about = told | _about(protocol, seed, drawn, warned, began)
        kept = keep(folder, "samples", run, _arrays(drawn), about)
        shown = np.asarray(drawn.v, np.float32)[:SHOWN]
        folder.write_bytes("samples.png", sheet_png(shown, columns=math.ceil(math.sqrt(len(shown)))))
        return kept


def complete_images(
    run: Run, out: Path | None = None, *, count: int = 10, tries: int = 3, mask: str = "half", seed: int = 0
) -> Kept:
    """Draw the hidden pixels of test images (training images where there are none), given the others.

    Nothing that is drawn has seen a hidden pixel. See `Heun` on how this is biased.
    """
    check_bounds(count=(count, IMAGES), tries=(tries, IMAGES))
    key, heun = _prepared(run, "inpainting", seed, count * tries)
    source, images = run.held_out
    hidden = hidden_pixels(mask, run.model.v.shape)
    if count > len(images):
        raise ValueError(f"count: expected at most the {len(images)} {source} images, got {count}; ask for fewer")
    with new_folder(run, "inpainting", out) as folder:
        began = time.perf_counter()
        rows = np.sort(np.random.default_rng(seed).permutation(len(images))[:count])
        originals = np.asarray(images[rows])
        masked = np.where(hidden, np.float32(0.5), originals)
        held = Held(jnp.asarray(~hidden), jnp.asarray(np.tile(masked, (tries, 1, 1, 1))))
        drawn, warned = watched(lambda: sample(key, run.model, count * tries, sampler=heun, held=held))
        arrays = {name: x.reshape(tries, count, *x.shape[1:]) for name, x in _arrays(drawn).items()}
        arrays |= {"originals": originals, "hidden": hidden, f"{source}_rows": rows}
        about = {"mask": printable(mask), "images": source, "tries": tries}
        protocol = (
            f"hidden pixels given the known pixels, Heun's method, each step {heun.resample} times{_latents(run)}"
        )
        kept = keep(folder, "inpainting", run, arrays, about | _about(protocol, seed, drawn, warned, began))
        sheet = np.stack([originals, masked, *arrays["v"]])[:SHOWN, : max(1, SHOWN // (2 + tries))]
        sheet, columns = sheet.reshape(-1, *originals.shape[1:]), sheet.shape[1]
        folder.write_bytes("inpainting.png", sheet_png(sheet, columns=columns))
        return kept


def walk_images(
    run: Run, out: Path | None = None, *, between: tuple[int, int] | None = None, rows: int = 10, seed: int = 0
) -> Kept:
    """Images on the way between two training images: their noise, the great circle between, and back."""
    check_bounds(rows=(rows, IMAGES))
    key, heun = _prepared(run, "interpolation", seed, rows)
    train = run.data.splits.train
    chosen = tuple(np.random.default_rng(seed).integers(len(train), size=2).tolist()) if between is None else between
    for one in chosen:
        if not 0 <= one < len(train):
            raise ValueError(f"between: expected numbers of training images, 0 to {len(train) - 1}, got {one}")
    with new_folder(run, "interpolation", out) as folder:
        began = time.perf_counter()
        ends = np.asarray(train[list(chosen)])
        drawn, warned = watched(lambda: interpolate(key, run.model, jnp.asarray(ends), rows, sampler=heun))
        arrays = _arrays(drawn) | {"along": np.linspace(0, 1, rows, dtype=np.float32), "ends": ends}
        protocol = "images between two training images, by the noise that Heun's method takes them to; h is held"
        about = {"training_rows": list(chosen)} | _about(protocol, seed, drawn, warned, began)
        kept = keep(folder, "interpolation", run, arrays, about)
        sheet = np.concatenate([ends[:1], arrays["v"], ends[1:]])[:SHOWN]
        folder.write_bytes("interpolation.png", sheet_png(np.asarray(sheet, np.float32), columns=len(sheet)))
        return kept


def _prepared(run: Run, use: str, seed: int, count: int) -> tuple[Any, Heun]:
    """The key and the sampler."""
    check_seed(seed)
    check_memory({"images": 2 * 4 * count * (run.model.v.size + run.model.h.size)}, "ask for fewer")
    heun = run.recipe.make_sampler(run.posterior)
    assert isinstance(heun, Heun)
    return seed_keys((seed,), use)[0], heun


def _latents(run: Run) -> str:
    """Where h comes from, for a reader."""
    return "; h from the posterior at each gradient" if run.has_latents else ""


def _arrays(drawn: Samples) -> dict[str, np.ndarray]:
    v = np.asarray(drawn.v)
    return {"v": v, "h": np.asarray(drawn.h), "diverged": np.asarray(~np.isfinite(v.reshape(len(v), -1)).all(axis=1))}


def _about(protocol: str, seed: int, drawn: Samples, warned: list[str], began: float) -> dict[str, Any]:
    count = len(drawn.v)
    return {
        "protocol": protocol,
        "seed": seed,
        "gradients": drawn.gradients,
        "gradients an image": drawn.gradients // count,
        "diverged chains": {"count": drawn.diverged, "of": count},
        "warnings": warned,
        "seconds": time.perf_counter() - began,
    }
