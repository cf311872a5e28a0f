"""Selects the checkpoint with the best FID of a few samples, as in the paper."""

from typing import Any

import numpy as np

from vages.app.recipes.reference import check_count, statistics_of
from vages.app.recipes.samples import Samples
from vages.app.recipes.sources import ImageSet
from vages.app.settings import DeepSettings
from vages.evaluation import Grey, Inception, as_pixels, feature_moments, fid, load_inception, metric_name
from vages.training.learner import Averages, LearnerState


def check_selection(recipe: DeepSettings) -> None:
    """Raise unless the network is there that a recipe selects by, if it selects."""
    if recipe.fid_every:
        load_inception()


def fid_selection(
    recipe: DeepSettings,
    train: np.ndarray,
    *,
    every: int = 5000,
    count: int = 1000,
    grey: Grey = "refuse",
    network: Inception | None = None,
) -> dict[str, Any]:
    """What `fit` is given to keep the weights of the lowest FID-1k, as the paper selects: `fit(…, **fid_selection(…))`.

    The chains' noise and training images come from a stream of their own, so that the number a run is reported with
    owes nothing to its selection.
    """
    check_count(count)
    network = load_inception() if network is None else network
    reference = statistics_of(
        ImageSet(f"{recipe.data}:train", len(train), lambda rows: as_pixels(train[rows], recipe.data, grey)), network
    )
    name = metric_name("FID", count).lower().replace("-", "_")

    def evaluate(state: LearnerState) -> dict[str, Any]:
        model, posterior = state.averages or Averages(state.model, state.posterior)
        given = train if model.h.size > 0 else None
        drawn = Samples(recipe, model, posterior, given, seed=recipe.seed, grey=grey, use="selection")
        moments = feature_moments(network, drawn.draw(count), count, kept=0)
        told = {"diverged_chains": drawn.diverged}
        if moments.n < count // 2:  # too few to be compared with others
            return {name: float("nan"), **told}
        return {name: fid(moments.statistics(), reference), **told}

    return {"evaluate": evaluate, "evaluate_every": every, "minimize": name}
