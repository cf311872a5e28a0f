"""What a run of any model has learnt, drawn by `vages.sample`: examples, completions, and a walk between two examples.

The chains are those of p(v, h) at temperature 1, with R̂ and effective sample size beside the draws.
"""

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from vages.app.recipes.samples import check_seed
from vages.app.report import figure_png, rows_figure, sheet_png, walk_rows_figure
from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.bounds import IMAGES, check_bounds
from vages.domains import Categorical, Product, Real
from vages.files import read_npy
from vages.memory import check_memory
from vages.posteriors import posterior_means
from vages.samplers import Held, Heun, Samples, SamplingWarning, interpolate, sample
from vages.terminal import printable
from vages.training import seed_keys

SHOWN = 1024  # images in a picture, at most
_NAMED = 8  # coordinates that are named one by one


def draw(run: Run, out: Path | None = None, *, count: int = 100, seed: int = 0) -> Kept:
    """Draws of v and h together."""
    check_bounds(count=(count, IMAGES))
    key = _key(run, "samples", seed, count)
    with new_folder(run, "samples", out) as folder:
        began = time.perf_counter()
        drawn, warned = sampled(key, run, count)
        arrays = _arrays(drawn.v, drawn.h)
        kept = keep(
            folder,
            "samples",
            run,
            arrays,
            _about(
                "v and h together" if run.has_latents else "v alone, the model has no latents",
                seed,
                drawn,
                warned,
                began,
                together=True,
            )
            | _kind(run),
        )
        folder.write_bytes("samples.png", _picture(run, arrays["v"]))
        return kept


def complete(
    run: Run, out: Path | None = None, *, count: int = 10, tries: int = 3, mask: str = "half", seed: int = 0
) -> Kept:
    """Draw the hidden coordinates of test examples (training examples where there are none), given the others."""
    check_bounds(count=(count, IMAGES), tries=(tries, IMAGES))
    key = _key(run, "inpainting", seed, count * tries)
    source, examples = run.held_out
    hidden = hidden_entries(mask, run.model.v.shape)
    if count > len(examples):
        raise ValueError(f"count: expected at most the {len(examples)} {source} examples, got {count}; ask for fewer")
    with new_folder(run, "inpainting", out) as folder:
        began = time.perf_counter()
        rows = np.sort(np.random.default_rng(seed).permutation(len(examples))[:count])
        originals = np.asarray(examples[rows])
        known = np.tile(originals, (tries, *[1] * len(run.model.v.shape)))
        drawn, warned = sampled(key, run, len(known), held=Held(jnp.asarray(~hidden), jnp.asarray(known)))
        arrays = {name: x.reshape(tries, count, *x.shape[1:]) for name, x in _arrays(drawn.v, drawn.h).items()}
        arrays |= {"originals": originals, "hidden": hidden, f"{source}_rows": rows}
        about = _kind(run) | {"mask": printable(mask), "examples": source, "tries": tries}
        about |= {"drawn": coordinates(hidden), "held": coordinates(~hidden)}
        about |= _about("hidden entries and h together, given the other entries", seed, drawn, warned, began)
        kept = keep(folder, "inpainting", run, arrays, about)
        sets = {"as they were": originals, "completed": arrays["v"].reshape(-1, *originals.shape[1:])}
        title = f"drawn: {about['drawn']}; held: {about['held']}"
        picture = rows_figure({name: _flat(x) for name, x in sets.items()}, title)
        folder.write_bytes("inpainting.png", figure_png(picture))
        return kept


def walk(
    run: Run, out: Path | None = None, *, between: tuple[int, int] | None = None, rows: int = 10, seed: int = 0
) -> Kept:
    """Draw v given h on the way from the posterior mean of one training example to that of another.

    Latents that are no real numbers go by their nearest states. Of a noise-conditional model, the way is that of the
    examples' noise, see `vages.interpolate`.
    """
    if not (run.has_latents or _flows(run)):
        raise ValueError(f"run: expected a model with latents, got {run.path}, a plain EBM, which has none to walk in")
    check_bounds(rows=(rows, IMAGES))
    key = _key(run, "interpolation", seed, rows)
    train = run.data.splits.train
    chosen = tuple(np.random.default_rng(seed).integers(len(train), size=2).tolist()) if between is None else between
    for one in chosen:
        if not 0 <= one < len(train):
            raise ValueError(f"between: expected numbers of training examples, 0 to {len(train) - 1}, got {one}")
    with new_folder(run, "interpolation", out) as folder:
        began = time.perf_counter()
        along, ends = np.linspace(0, 1, rows, dtype=np.float32), np.asarray(train[list(chosen)])
        drawn, warned = on_the_way(key, run, ends, along)
        way = "by the noise that Heun's method takes them to" if _flows(run) else "h between their posterior means"
        protocol = f"v given h on the way from one training example to another, {way}"
        arrays = _arrays(drawn.v, drawn.h) | {"along": along, "ends": ends}
        about = _kind(run) | {"training_rows": list(chosen)} | _about(protocol, seed, drawn, warned, began)
        kept = keep(folder, "interpolation", run, arrays, about)
        labels = [f"{share:.2f}" for share in along]
        title = f"from training row {chosen[0]} (0) to {chosen[1]} (1), {way}"
        picture = walk_rows_figure(_flat(arrays["v"]), labels, _flat(np.asarray(train[:2000])), title)
        folder.write_bytes("interpolation.png", figure_png(picture))
        return kept


def hidden_entries(mask: str, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."]:
    """True where an example is hidden: the second `half` of its entries, those of a list 0,3,5, or of a .npy file."""
    size = math.prod(shape)
    hidden = np.zeros(size, bool)
    words = mask.split(",")
    if mask == "half":
        hidden[size // 2 :] = True
    elif all(word.strip().isdecimal() for word in words):
        numbers = [int(word) for word in words]
        if max(numbers) >= size:
            raise ValueError(f"mask: expected entries from 0 to {size - 1}, got {max(numbers)}; choose others")
        hidden[numbers] = True
    elif mask.lower().endswith(".npy"):
        array = read_npy(Path(mask), 2**26)
        if array.shape != shape or not np.isin(array, (0, 1)).all():
            raise ValueError(f"{mask}: expected true or false for each entry of {shape}, got others; write such a file")
        hidden = array.astype(bool).reshape(-1)
    else:
        raise ValueError(f"mask: expected half, numbers of entries (0,3,5), or a .npy file, got {mask!r}; choose one")
    if hidden.all() or not hidden.any():
        raise ValueError(f"mask: expected hidden and known entries, got only {'hidden' if hidden.all() else 'known'}")
    return hidden.reshape(shape)


def coordinates(chosen: Bool[np.ndarray, "..."]) -> str:
    """The names of coordinates, and how many more there are."""
    names = [f"v[{','.join(map(str, place))}]" for place in np.argwhere(chosen)[: _NAMED + 1].tolist()]
    more = int(chosen.sum()) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"


def _kind(run: Run) -> dict[str, Any]:
    """What the examples are, for a reader of the result."""
    return {"of": "images" if run.is_of_images else "rows"}


def check_drawable(run: Run, count: int) -> None:
    """Raise unless so many draws can be made of the run's model, which must need no context."""
    if run.data_has_context:
        raise ValueError(
            f"run: expected a model without a context, got {run.path}, whose data have one; draw in Python with "
            "vages.sample(key, load_run(path, recipe).model, n, context=…)"
        )
    check_memory({"draws": 2 * 4 * count * (run.model.v.size + run.model.h.size)}, "ask for fewer")


def on_the_way(key: Any, run: Run, ends: np.ndarray, along: np.ndarray) -> tuple[Samples, list[str]]:
    """Draws on the way from one example to another, and what the sampler warned of."""
    if _flows(run):
        heun = run.recipe.make_sampler(run.posterior)
        return watched(lambda: interpolate(key, run.model, jnp.asarray(ends), len(along), sampler=heun))
    return sampled(key, run, len(along), h=_latents_between(run, ends, along))


def _flows(run: Run) -> bool:
    return isinstance(run.recipe.make_sampler(run.posterior), Heun)


def _latents_between(run: Run, ends: np.ndarray, along: np.ndarray) -> Any:
    """h on the line between the posterior means of two examples; latents that are no real numbers are rounded."""
    means = posterior_means(run.model, run.posterior, ends)
    return jax.tree.map(jnp.asarray, _nearest(run.model.h, jax.tree.map(lambda x: _between(x, along), means)))


def _key(run: Run, use: str, seed: int, count: int) -> Any:
    check_seed(seed)
    check_drawable(run, count)
    return seed_keys((seed,), use)[0]


def sampled(key: Any, run: Run, count: int, **given: Any) -> tuple[Samples, list[str]]:
    """The draws, and what the sampler warned of."""
    return watched(lambda: sample(key, run.model, count, sampler=run.recipe.make_sampler(run.posterior), **given))


def watched(draw: Callable[[], Samples]) -> tuple[Samples, list[str]]:
    """The draws, and what the sampler warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        drawn = draw()
    return drawn, [printable(str(one.message)) for one in caught if issubclass(one.category, SamplingWarning)]


def _about(
    protocol: str, seed: int, drawn: Samples, warned: list[str], began: float, *, together: bool = False
) -> dict[str, Any]:
    """How draws came about; where all are `together` of one law, they have an effective sample size."""
    diagnosed = {"R̂": drawn.worst_rhat} if drawn.rhat else {}
    if together:
        diagnosed["effective sample size"] = drawn.least_ess
    return {
        "protocol": protocol,
        "seed": seed,
        **{name: value if math.isfinite(value) else None for name, value in diagnosed.items()},
        "acceptance": drawn.acceptance,
        "diverged moves": drawn.diverged,
        "gradients": drawn.gradients,
        "warnings": warned,
        "seconds": time.perf_counter() - began,
    }


def _arrays(v: Any, h: Any) -> dict[str, np.ndarray]:
    latents = {f"h.{name}": x for name, x in h.items()} if isinstance(h, dict) else {"h": h}
    return {"v": np.asarray(v), **{name: np.asarray(x) for name, x in latents.items()}}


def _picture(run: Run, v: np.ndarray) -> bytes:
    """The draws beside held-out examples."""
    if run.is_of_images:
        shown = v[:SHOWN]
        return sheet_png(np.asarray(shown, np.float32), columns=math.ceil(math.sqrt(len(shown))))
    source, examples = run.held_out
    return figure_png(rows_figure({f"{source} examples": _flat(np.asarray(examples[:2000])), "draws": _flat(v)}))


def _flat(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows, np.float64).reshape(len(rows), -1)


def _between(ends: np.ndarray, along: np.ndarray) -> np.ndarray:
    share = along.reshape(-1, *[1] * (ends.ndim - 1))
    return ((1 - share) * ends[0] + share * ends[1]).astype(np.float32)


def _nearest(domain: Any, h: Any) -> Any:
    """The nearest states of a domain: zeros and ones, one-hot rows, or real numbers as they are."""
    if isinstance(domain, Product):
        return {name: _nearest(part, h[name]) for name, part in domain.parts}
    if isinstance(domain, Categorical):
        return np.eye(h.shape[-1], dtype=h.dtype)[h.argmax(-1)]
    return h if isinstance(domain, Real) else np.rint(h)
