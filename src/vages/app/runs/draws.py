"""Samples, completions and interpolations from a run of any model, drawn by `vages.sample`.

Chains sample p(v, h) at temperature 1; R̂ and effective sample size are reported with the draws. Noise-conditional
models are sampled by Heun's method, from noise of the highest level to an example.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vages.app.recipes.samples import check_seed
from vages.app.report import figure_png, rows_figure, sheet_png, walk_rows_figure
from vages.app.runs.classes import class_of, label_of, recorded_classes, told_class, untrained_label
from vages.app.runs.completions import SHOWN, chosen_examples, completions_png, coordinates, hidden_part
from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.app.runs.own_examples import Example, ends_of, needs_context, random_pair
from vages.bounds import IMAGES, check_bounds
from vages.domains import Categorical, Product, Real
from vages.memory import check_memory
from vages.posteriors import posterior_means
from vages.samplers import Held, Heun, Samples, SamplingWarning, interpolate, sample
from vages.samplers.flow import NO_LABEL
from vages.terminal import printable
from vages.training import seed_keys

NOISE_CONDITIONAL = "noise-conditional models"


def draw(
    run: Run,
    out: Path | None = None,
    *,
    count: int = 100,
    label: int | str | None = None,
    guidance: float | None = None,
    seed: int = 0,
) -> Kept:
    """Draw v and h jointly: of all classes, or of one by its label or name, optionally with `guidance` (see `Heun`)."""
    check_bounds(count=(count, IMAGES))
    given = _label(run, label, guidance)
    key = _key(run, "samples", seed, count)
    context = None if given.label is None else {"label": jnp.full(count, given.label, jnp.int32)}
    with new_folder(run, "samples", out) as folder:
        began = time.perf_counter()
        drawn, warned = sampled(key, run, count, guidance=guidance, context=context)
        arrays = _arrays(run, drawn)
        protocol = "v and h jointly" if run.has_latents else "v alone, the model has no latents"
        if (heun := _heun(run)) is not None:
            protocol = f"Heun's method, {heun.steps} steps{given.told}{_latents(run)}"
        about = given.record | _about(run, protocol, seed, drawn, [*warned, *given.warned], began, together=True)
        kept = keep(folder, "samples", run, arrays, about)
        folder.write_bytes("samples.png", _picture(run, arrays["v"]))
        return kept


def complete(
    run: Run,
    out: Path | None = None,
    *,
    file: str | Path | None = None,
    count: int | None = None,
    tries: int = 3,
    mask: str = "half",
    seed: int = 0,
) -> Kept:
    """Draw the hidden coordinates of test examples (training examples if there are none), given the others.

    `file` gives other examples, see `own_examples`. The values of hidden coordinates are not used. Draws by Heun's
    method are biased, see `Heun`.
    """
    check_bounds(tries=(tries, IMAGES))
    hidden = hidden_part(run, mask)
    originals, source, rows, named = chosen_examples(run, file, count, seed)
    key = _key(run, "inpainting", seed, len(originals) * tries)
    with new_folder(run, "inpainting", out) as folder:
        began = time.perf_counter()
        known = np.tile(originals, (tries, *[1] * len(run.model.v.shape)))
        drawn, warned = sampled(key, run, len(known), held=Held(jnp.asarray(~hidden), jnp.asarray(known)))
        arrays = {name: x.reshape(tries, len(originals), *x.shape[1:]) for name, x in _arrays(run, drawn).items()}
        originals = run.in_units(originals)
        arrays |= {"originals": originals, "hidden": hidden, **rows}
        protocol = "hidden entries and h jointly, given the other entries"
        if (heun := _heun(run)) is not None:
            steps = f"{heun.steps} steps, each {heun.resample} times"
            protocol = f"hidden entries given the others, Heun's method, {steps}{_latents(run)}"
        about = {"mask": printable(mask), "examples": source, "tries": tries} | named
        about |= {"drawn": coordinates(hidden), "held": coordinates(~hidden)}
        about |= _about(run, protocol, seed, drawn, warned, began)
        kept = keep(folder, "inpainting", run, arrays, about)
        if run.image_shape is not None:
            picture = completions_png(originals, hidden, arrays["v"], run.image_shape)
        else:
            sets = {"original": originals, "completed": arrays["v"].reshape(-1, *originals.shape[1:])}
            title = f"drawn: {about['drawn']}; held: {about['held']}"
            picture = figure_png(rows_figure({name: _flat(x) for name, x in sets.items()}, title))
        folder.write_bytes("inpainting.png", picture)
        return kept


def walk(
    run: Run,
    out: Path | None = None,
    *,
    between: tuple[Example, Example] | None = None,
    rows: int = 10,
    seed: int = 0,
) -> Kept:
    """Draw v given h, on the line from the posterior mean of one example to that of another.

    `between` gives training examples by number, or files (see `own_example`); by default the seed chooses two training
    examples. Discrete latents are rounded to the nearest states. A noise-conditional model maps both examples to noise,
    and draws are made from the noise between them, see `vages.interpolate`.
    """
    if not run.has_latents and _heun(run) is None:
        raise ValueError(f"run: expected a model with latents, got {run.path}, a plain EBM, which has none")
    check_bounds(rows=(rows, IMAGES))
    key = _key(run, "interpolation", seed, rows)
    ends, about = ends_of(run, random_pair(run, seed) if between is None else between)
    with new_folder(run, "interpolation", out) as folder:
        began = time.perf_counter()
        along = np.linspace(0, 1, rows, dtype=np.float32)
        drawn, warned = on_the_way(key, run, ends, along)
        way = "with h between their posterior means"
        if (heun := _heun(run)) is not None:
            way = f"by interpolating the noise to which {heun.steps} steps of Heun's method map them; h is fixed"
        protocol = f"v between one example and another, {way}"
        arrays = _arrays(run, drawn) | {"along": along, "ends": run.in_units(ends)}
        about |= _about(run, protocol, seed, drawn, warned, began)
        kept = keep(folder, "interpolation", run, arrays, about)
        folder.write_bytes(
            "interpolation.png", _picture_of_walk(run, arrays["v"], arrays["ends"], along, about["between"], way)
        )
        return kept


def _picture_of_walk(run: Run, v: np.ndarray, ends: np.ndarray, along: np.ndarray, names: list[str], way: str) -> bytes:
    """Return a row of images with the ends outermost, or a plot of the draws over the training examples."""
    if run.image_shape is not None:
        return walk_png(v, ends, run.image_shape)
    labels = [f"{share:.2f}" for share in along]
    title = f"from {names[0]} (0) to {names[1]} (1), {way}"
    train = _flat(run.in_units(np.asarray(run.data.splits.train[:2000])))
    return figure_png(walk_rows_figure(_flat(v), labels, train, title))


def walk_png(v: np.ndarray, ends: np.ndarray, image: tuple[int, ...]) -> bytes:
    """Return a PNG with the images of a walk in a row, between its two ends."""
    sheet = np.concatenate([ends[:1], v, ends[1:]])[:SHOWN].reshape(-1, *image)
    return sheet_png(np.asarray(sheet, np.float32), columns=len(sheet))


class _Label(NamedTuple):
    """A label that draws are given: how a protocol tells it, its record in a result, and warnings."""

    label: int | None
    told: str
    record: dict[str, Any]
    warned: list[str]


def _label(run: Run, given: int | str | None, guidance: float | None) -> _Label:
    """Return the label of a class given by label or name; raise ValueError if the run has no labels."""
    if given is None and guidance is None:
        return _Label(None, "", {}, [])
    name, got = ("guidance", guidance) if given is None else ("label", given)
    if _heun(run) is None:
        raise ValueError(f"{name}: expected nothing for {run.recipe.kind}, got {got}; it is for {NOISE_CONDITIONAL}")
    if not getattr(run.settings, "labels", run.recipe.parts is None):
        advice = "; train one with --labels" if hasattr(run.settings, "labels") else "; leave it out"
        raise ValueError(f"{name}: expected none for a run without labels, got {got}{advice}")
    classes = recorded_classes(run.dataset)
    label = label_of(given, classes)
    if guidance is not None and label in (None, NO_LABEL):
        some = next((one["label"] for one in classes if one["images"]), 0)
        got = "none" if label is None else f"{label}, which means no label"
        raise ValueError(f"guidance: expected a label to guide to, got {got}; give --label {some}, for example")
    assert label is not None
    told = "" if label == NO_LABEL else f", given the label {told_class(class_of(label, classes))}"
    told += "" if guidance is None else f" with guidance {guidance:g}"
    return _Label(label, told, {"label": label, "guidance": guidance}, untrained_label(label, classes))


def check_drawable(run: Run, count: int) -> None:
    """Raise ValueError if the data have a context, or if `count` draws do not fit in memory."""
    if needs_context(run):
        raise ValueError(
            f"run: expected a model without a context, got {run.path}, whose data have one; draw in Python with "
            "vages.sample(key, load_run(path, recipe).model, n, context=…)"
        )
    check_memory({"draws": 2 * 4 * count * (run.model.v.size + run.model.h.size)}, "ask for fewer")


def on_the_way(key: Any, run: Run, ends: np.ndarray, along: np.ndarray) -> tuple[Samples, list[str]]:
    """Return draws between two examples, and the sampler's warnings."""
    if (heun := _heun(run)) is not None:
        return watched(lambda: interpolate(key, run.model, jnp.asarray(ends), len(along), sampler=heun))
    return sampled(key, run, len(along), h=_latents_between(run, ends, along))


def _heun(run: Run) -> Heun | None:
    """Return the sampler of a noise-conditional model; None for any other model."""
    sampler = run.recipe.make_sampler(run.posterior)
    return sampler if isinstance(sampler, Heun) else None


def _latents(run: Run) -> str:
    """Describe where Heun's method has h from."""
    return "; h from the posterior at each gradient" if run.has_latents else ""


def _latents_between(run: Run, ends: np.ndarray, along: np.ndarray) -> Any:
    """Return h on the line between the posterior means of two examples; discrete latents are rounded."""
    means = posterior_means(run.model, run.posterior, ends)
    return jax.tree.map(jnp.asarray, _nearest(run.model.h, jax.tree.map(lambda x: line_between(x, along), means)))


def _key(run: Run, use: str, seed: int, count: int) -> Any:
    check_seed(seed)
    check_drawable(run, count)
    return seed_keys((seed,), use)[0]


def sampled(key: Any, run: Run, count: int, guidance: float | None = None, **given: Any) -> tuple[Samples, list[str]]:
    """Draw from the run's model; return the draws and the sampler's warnings."""
    sampler = run.recipe.make_sampler(run.posterior)
    sampler = sampler if guidance is None else replace(sampler, guidance=guidance)
    return watched(lambda: sample(key, run.model, count, sampler=sampler, **given))


def watched(draw: Callable[[], Samples]) -> tuple[Samples, list[str]]:
    """Call `draw`; return the draws and the sampler's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        drawn = draw()
    return drawn, [printable(str(one.message)) for one in caught if issubclass(one.category, SamplingWarning)]


def _about(
    run: Run, protocol: str, seed: int, drawn: Samples, warned: list[str], began: float, *, together: bool = False
) -> dict[str, Any]:
    """Return how draws were made, with the effective sample size if they are all from one distribution (`together`)."""
    if _heun(run) is not None:
        found = {"diverged chains": {"count": drawn.diverged, "of": len(drawn.v)}}
    else:
        diagnosed = {"R̂": drawn.worst_rhat} if drawn.rhat else {}
        diagnosed |= {"effective sample size": drawn.least_ess} if together else {}
        found = {name: value if math.isfinite(value) else None for name, value in diagnosed.items()}
        found |= {"acceptance": drawn.acceptance, "diverged moves": drawn.diverged}
    return {
        "protocol": protocol,
        "of": "rows" if run.image_shape is None else "images",
        "seed": seed,
        **found,
        "gradients": drawn.gradients,
        "warnings": warned,
        "seconds": time.perf_counter() - began,
    }


def _arrays(run: Run, drawn: Samples) -> dict[str, np.ndarray]:
    """Return v in the data's units, h, and which draws are not finite."""
    v, h = run.in_units(np.asarray(drawn.v)), drawn.h
    latents = {f"h.{name}": x for name, x in h.items()} if isinstance(h, dict) else {"h": h}
    diverged = ~np.isfinite(v.reshape(len(v), -1)).all(axis=1)
    return {"v": v, **{name: np.asarray(x) for name, x in latents.items()}, "diverged": diverged}


def _picture(run: Run, v: np.ndarray) -> bytes:
    """Return a picture of the draws: a sheet of images, or a plot beside held-out examples."""
    if run.image_shape is not None:
        shown = v[:SHOWN].reshape(-1, *run.image_shape)
        return sheet_png(np.asarray(shown, np.float32), columns=math.ceil(math.sqrt(len(shown))))
    source, examples = run.held_out
    return figure_png(
        rows_figure({f"{source} examples": _flat(run.in_units(np.asarray(examples[:2000]))), "draws": _flat(v)})
    )


def _flat(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows, np.float64).reshape(len(rows), -1)


def line_between(ends: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Return the points at fractions `along` of the line from ends[0] to ends[1]."""
    share = along.reshape(-1, *[1] * (ends.ndim - 1))
    return ((1 - share) * ends[0] + share * ends[1]).astype(np.float32)


def _nearest(domain: Any, h: Any) -> Any:
    """Round h to the nearest states of a domain: zeros and ones, or one-hot rows; real numbers are unchanged."""
    if isinstance(domain, Product):
        return {name: _nearest(part, h[name]) for name, part in domain.parts}
    if isinstance(domain, Categorical):
        return np.eye(h.shape[-1], dtype=h.dtype)[h.argmax(-1)]
    return h if isinstance(domain, Real) else np.rint(h)
