"""Posterior means as features of images, and how much a linear classifier reads from them."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.runs.kept import Kept, keep, new_folder
from vages.app.runs.loaded import Run
from vages.evaluation import linear_probe, majority_rate
from vages.posteriors import posterior_means
from vages.samplers.program import Progress


def embed(run: Run, out: Path | None = None, *, progress: Progress | None = None) -> Kept:
    """Write the posterior means of all images, and the accuracies of linear classifiers on the test images.

    The classifiers are trained on the training images alone: on their means, and on their pixels to compare with.
    """
    if not run.has_latents:
        raise ValueError(
            f"run: expected a model with latents, got {run.path}, a plain EBM, which has no means to embed"
        )
    splits, labels, context = run.data.splits, run.data.labels, run.data.context
    with new_folder(run, "embedding", out) as folder:
        began = time.perf_counter()
        given = None if context is None else {name: np.concatenate(parts) for name, parts in context.items()}
        means = posterior_means(run.model, run.posterior, np.concatenate(splits), context=given, progress=progress)
        cuts = np.cumsum([len(part) for part in splits])[:2]
        one = {"": means} if not isinstance(means, dict) else {f".{name}": x for name, x in means.items()}
        arrays = {
            f"{split}{name}": part
            for name, x in one.items()
            for split, part in zip(splits._fields, np.split(x, cuts), strict=True)
        }
        about: dict[str, Any] = {"protocol": "the mean of q(h | v) for each example"}
        if labels is not None:
            arrays |= {f"{name}_labels": part for name, part in labels._asdict().items()}
            if len(labels.test) and not isinstance(means, dict):
                pixels = [part.reshape(len(part), -1) for part in (splits.train, splits.test)]
                about["linear probe"] = {
                    "trained on": len(labels.train),
                    "tested on": len(labels.test),
                    "means": linear_probe(arrays["train"], labels.train, arrays["test"], labels.test)._asdict(),
                    "pixels": linear_probe(pixels[0], labels.train, pixels[1], labels.test)._asdict(),
                    "most frequent class": majority_rate(labels.train, labels.test),
                }
        return keep(folder, "embedding", run, arrays, about | {"seconds": time.perf_counter() - began})
