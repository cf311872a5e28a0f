"""Selection of weights by the FID of a few samples, as in the paper."""

from collections.abc import Callable
from typing import Any

import numpy as np

from vages.app.recipes.examples import Examples
from vages.app.recipes.reference import check_count, statistics_of
from vages.app.recipes.samples import chain_samples
from vages.app.recipes.sources import ImageSet
from vages.evaluation import Gray, Inception, Statistics, as_pixels, feature_moments, fid, load_inception, metric_name
from vages.models import EBLVM
from vages.samplers import Schedule

Chains = Callable[[Any, EBLVM], tuple[EBLVM, Schedule]]  # the model and schedule of chains, from settings and a model


class FIDSelection:
    """Selection by the FID of `count` samples: `Recipe(…, evaluate=selection, minimize=selection.name)`.

    The chains' noise and training images come from a separate random stream, so that the reported FID of a run is
    independent of its selection.
    """

    def __init__(self, chains: Chains, *, count: int = 1000, gray: Gray = "refuse", network: Inception | None = None):
        check_count(count)
        self.count, self.name = count, metric_name("FID", count).lower().replace("-", "_")
        self._gray: Gray = gray
        self._chains = chains
        self._network, self._reference = network, None

    def check(self) -> None:
        """Load the network, and raise if it is not installed."""
        self._network = load_inception() if self._network is None else self._network

    def __call__(self, key: Any, settings: Any, model: Any, posterior: Any, data: Examples) -> dict[str, Any]:
        """Return the FID against all training images, NaN if too many chains diverged."""
        self.check()
        assert self._network is not None
        train = data.splits.train
        reference = self._reference = self._reference or self._statistics(train, settings.data)
        given = train if model.h.size > 0 else None
        chains = self._chains(settings, model)
        drawn = chain_samples(chains, model, posterior, given, seed=settings.seed, gray=self._gray, use="selection")
        moments = feature_moments(self._network, drawn.draw(self.count), self.count, kept=0)
        told = {"diverged_chains": drawn.diverged}
        if moments.n < self.count // 2:  # too few for a comparison
            return {self.name: float("nan"), **told}
        return {self.name: fid(moments.statistics(), reference), **told}

    def _statistics(self, train: np.ndarray, name: str) -> Statistics:
        assert self._network is not None
        read = lambda rows: as_pixels(train[rows], name, self._gray)
        return statistics_of(ImageSet(f"{name}:train", len(train), read), self._network)
