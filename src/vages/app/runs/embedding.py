"""Posterior means as features of examples, and the accuracy of linear classifiers on them."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.app.runs.own_examples import needs_context, own_examples
from vages.evaluation import linear_probe, majority_rate
from vages.posteriors import posterior_means
from vages.samplers.program import Progress
from vages.terminal import printable


def embed(
    run: Run, out: Path | None = None, *, file: str | Path | None = None, progress: Progress | None = None
) -> Kept:
    """Write the posterior means of all examples and, if there are labels, the test accuracies of linear classifiers.

    One classifier is trained on the means of the training examples and, for comparison, one on their pixels. A
    noise-conditional model is not given the labels, which a classifier would find in the means. Other models with a
    context are given it, and then no classifier is trained. With a `file` (see `own_examples`), only the means of its
    examples are written, as `given`.
    """
    if not run.has_latents:
        raise ValueError(f"run: expected a model with latents, got {run.path}, a plain EBM, which has none")
    if file is not None:
        return _embed_file(run, out, file, progress)
    splits, labels = run.data.splits, run.data.labels
    with new_folder(run, "embedding", out) as folder:
        began = time.perf_counter()
        arrays = _means(run, progress)
        about = _about(run)
        if labels is not None:
            arrays |= {f"{name}_labels": part for name, part in labels._asdict().items()}
            if len(labels.test) and "test" in arrays and not needs_context(run):
                pixels = [part.reshape(len(part), -1) for part in (splits.train, splits.test)]
                about["linear probe"] = {
                    "trained on": len(labels.train),
                    "tested on": len(labels.test),
                    "means": linear_probe(arrays["train"], labels.train, arrays["test"], labels.test)._asdict(),
                    "pixels": linear_probe(pixels[0], labels.train, pixels[1], labels.test)._asdict(),
                    "most frequent class": majority_rate(labels.train, labels.test),
                }
        return keep(folder, "embedding", run, arrays, about | {"seconds": time.perf_counter() - began})


def _embed_file(run: Run, out: Path | None, file: str | Path, progress: Progress | None) -> Kept:
    own = own_examples(run, file)
    if needs_context(run):
        raise ValueError(
            f"run: expected a model without a context, got {run.path}, whose data have one; compute the means in "
            "Python with vages.posteriors.posterior_means(…, context=…)"
        )
    with new_folder(run, "embedding", out) as folder:
        began = time.perf_counter()
        means = posterior_means(run.model, run.posterior, own.v, progress=progress)
        about = _about(run) | {"examples": printable(file), "names": list(own.names)}
        return keep(folder, "embedding", run, _named("given", means), about | {"seconds": time.perf_counter() - began})


def _about(run: Run) -> dict[str, Any]:
    images = run.image_shape is not None
    given = ", given its context" if needs_context(run) else ", without its label" if run.data_has_context else ""
    return {"protocol": f"the mean of q(h | v) for each example{given}", "of": "images" if images else "rows"}


def _named(name: str, means: Any) -> dict[str, np.ndarray]:
    """Return the means under a name; those of mixed latents under NAME.LATENT."""
    if not isinstance(means, dict):
        return {name: means}
    return {f"{name}.{latent}": x for latent, x in means.items()}


def _means(run: Run, progress: Progress | None) -> dict[str, np.ndarray]:
    """Return the means of each split under its name (SPLIT.LATENT for mixed latents). Mapped rows are not copied."""
    splits, context = run.data.splits, run.data.context if needs_context(run) else None
    mapped = isinstance(splits.train, np.memmap)
    sets = [(name,) for name in splits._fields] if mapped else [splits._fields]
    arrays = {}
    for names in sets:
        of = lambda parts, names=names: _joined([getattr(parts, name) for name in names])
        given = None if context is None else {name: of(parts) for name, parts in context.items()}
        means = posterior_means(run.model, run.posterior, of(splits), context=given, progress=progress)
        one = _named("", means)
        cuts = np.cumsum([len(getattr(splits, name)) for name in names])[:-1]
        for suffix, x in one.items():
            arrays |= {f"{name}{suffix}": part for name, part in zip(names, np.split(x, cuts), strict=True)}
    return arrays


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
