"""Samples, completions and interpolations from a run of a noise-conditional model of images.

All are drawn by Heun's method, from noise of the highest level to an image.
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
from vages.app.runs.classes import class_of, label_of, recorded_classes, told_class, untrained_label
from vages.app.runs.completions import SHOWN, chosen_examples, completions_png, hidden_pixels, masked
from vages.app.runs.draws import walk_png, watched
from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.app.runs.own_examples import Example, ends_of, random_pair
from vages.bounds import IMAGES, check_bounds
from vages.memory import check_memory
from vages.samplers import Held, Heun, Samples, interpolate, sample
from vages.samplers.flow import NO_LABEL
from vages.terminal import printable
from vages.training import seed_keys


def draw_images(
    run: Run,
    out: Path | None = None,
    *,
    count: int = 100,
    label: int | str | None = None,
    guidance: float | None = None,
    seed: int = 0,
) -> Kept:
    """Draw images of all classes, or of one by its label or name, optionally with `guidance` to it (see `Heun`)."""
    check_bounds(count=(count, IMAGES))
    if (label is not None or guidance is not None) and not getattr(run.settings, "labels", True):
        name, got = ("guidance", guidance) if label is None else ("label", label)
        raise ValueError(f"{name}: expected none for a run without labels, got {got}; train one with --labels")
    classes = recorded_classes(run.dataset)
    label = label_of(label, classes)
    if guidance is not None and label in (None, NO_LABEL):
        some = next((one["label"] for one in classes if one["images"]), 0)
        got = "none" if label is None else f"{label}, which means no label"
        raise ValueError(f"guidance: expected a label to guide to, got {got}; give --label {some}, for example")
    key, heun = _prepared(run, "samples", seed, count)
    context = None if label is None else {"label": jnp.full(count, label, jnp.int32)}
    heun = replace(heun, guidance=guidance)
    with new_folder(run, "samples", out) as folder:
        began = time.perf_counter()
        drawn, warned = watched(lambda: sample(key, run.model, count, sampler=heun, context=context))
        warned += untrained_label(label, classes)
        told = {"label": label, "guidance": guidance} if label is not None else {}
        given = "" if label in (None, NO_LABEL) else f", given the label {told_class(class_of(label, classes))}"
        given += "" if guidance is None else f" with guidance {guidance:g}"
        protocol = f"Heun's method, {heun.steps} steps{given}{_latents(run)}"
        about = told | _about(protocol, seed, drawn, warned, began)
        kept = keep(folder, "samples", run, _arrays(drawn), about)
        shown = np.asarray(drawn.v, np.float32)[:SHOWN]
        folder.write_bytes("samples.png", sheet_png(shown, columns=math.ceil(math.sqrt(len(shown)))))
        return kept


def complete_images(
    run: Run,
    out: Path | None = None,
    *,
    file: str | Path | None = None,
    count: int | None = None,
    tries: int = 3,
    mask: str = "half",
    seed: int = 0,
) -> Kept:
    """Draw the hidden pixels of test images (training images if there are none), given the others.

    `file` gives other images, see `own_examples`. The values of hidden pixels are not used. The draws are biased, see
    `Heun`.
    """
    check_bounds(tries=(tries, IMAGES))
    hidden = hidden_pixels(mask, run.model.v.shape)
    originals, source, rows, named = chosen_examples(run, file, count, seed)
    drawn_images = len(originals) * tries
    key, heun = _prepared(run, "inpainting", seed, drawn_images)
    with new_folder(run, "inpainting", out) as folder:
        began = time.perf_counter()
        held = Held(jnp.asarray(~hidden), jnp.asarray(np.tile(masked(originals, hidden), (tries, 1, 1, 1))))
        drawn, warned = watched(lambda: sample(key, run.model, drawn_images, sampler=heun, held=held))
        arrays = {name: x.reshape(tries, len(originals), *x.shape[1:]) for name, x in _arrays(drawn).items()}
        arrays |= {"originals": originals, "hidden": hidden, **rows}
        protocol = (
            f"hidden pixels given the known pixels, Heun's method, {heun.steps} steps, each {heun.resample} times"
            f"{_latents(run)}"
        )
        about = (
            {"mask": printable(mask), "images": source, "tries": tries}
            | named
            | _about(protocol, seed, drawn, warned, began)
        )
        kept = keep(folder, "inpainting", run, arrays, about)
        folder.write_bytes("inpainting.png", completions_png(originals, hidden, arrays["v"]))
        return kept


def walk_images(
    run: Run,
    out: Path | None = None,
    *,
    between: tuple[Example, Example] | None = None,
    rows: int = 10,
    seed: int = 0,
) -> Kept:
    """Interpolate between two images: map both to noise, follow the great circle between, and map back.

    `between` gives training images by number, or files (see `own_example`); by default the seed chooses two.
    """
    check_bounds(rows=(rows, IMAGES))
    key, heun = _prepared(run, "interpolation", seed, rows)
    ends, about = ends_of(run, random_pair(run, seed) if between is None else between)
    with new_folder(run, "interpolation", out) as folder:
        began = time.perf_counter()
        drawn, warned = watched(lambda: interpolate(key, run.model, jnp.asarray(ends), rows, sampler=heun))
        arrays = _arrays(drawn) | {"along": np.linspace(0, 1, rows, dtype=np.float32), "ends": ends}
        protocol = (
            f"images between two others, by interpolating the noise to which {heun.steps} steps of Heun's method map "
            "them; h is fixed"
        )
        kept = keep(folder, "interpolation", run, arrays, about | _about(protocol, seed, drawn, warned, began))
        folder.write_bytes("interpolation.png", walk_png(arrays["v"], ends, run.model.v.shape))
        return kept


def _prepared(run: Run, use: str, seed: int, count: int) -> tuple[Any, Heun]:
    """Check the arguments, and return the key and the sampler."""
    check_seed(seed)
    check_memory({"images": 2 * 4 * count * (run.model.v.size + run.model.h.size)}, "ask for fewer")
    heun = run.recipe.make_sampler(run.posterior)
    assert isinstance(heun, Heun)
    return seed_keys((seed,), use)[0], heun


def _latents(run: Run) -> str:
    """Describe where h comes from."""
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
