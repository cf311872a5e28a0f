"""FID and KID of images, with everything the numbers depend on."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from vages.app.runs.dataset import told_of_data
from vages.evaluation import KID, Extrapolation, Gray, metric_name


class Real(NamedTuple):
    """FID and KID of real images, which an ideal model would have."""

    images: str
    n: int
    fid: float
    kid: KID


@dataclass(frozen=True)
class Sampling:
    """How samples of a run were drawn."""

    run: str
    protocol: str
    checkpoint: int
    weights: str
    sampler: str
    evaluations: int
    """Number of energy gradients along one chain."""
    seed: int
    diverged: int
    of: int
    data: dict[str, Any] | None = None
    """The name and fingerprints of the run's images, and whether they are its own; None if none were read."""


@dataclass(frozen=True)
class Quality:
    """FID and KID with all that they depend on. `metric` gives the number of images; plain FID has 50,000 or more."""

    metric: str
    fid: float
    n: int
    source: dict[str, Any]
    reference: dict[str, Any]
    weights: str
    preprocessing: str
    gray: Gray
    extrapolated: Extrapolation | None
    kid: KID
    real: Real | None
    sampling: Sampling | None
    minutes: float
    environment: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        named = {
            name: part and part._asdict()
            for name, part in (("extrapolated", self.extrapolated), ("kid", self.kid), ("real", self.real))
        }
        if self.real is not None:
            named["real"] = {**self.real._asdict(), "kid": self.real.kid._asdict()}
        return {**asdict(self), **named}

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of a table."""
        real, far, how = self.real, self.extrapolated, self.sampling
        rows = [(self.metric, f"{self.fid:.3f}")]
        if far is not None:
            sizes = ", ".join(f"{n:,}" for n in far.n)
            rows += [("FID∞, extrapolated", f"{far.value:.3f} (largest residual {far.residual:.3f}, from n = {sizes})")]
        rows += [(metric_name("KID", self.n), _kid_told(self.kid, self.n))]
        if real is not None:
            rows += [
                (f"{metric_name('FID', real.n)} of real images", f"{real.fid:.3f} ({real.images})"),
                (f"{metric_name('KID', real.n)} of real images", _kid_told(real.kid, real.n)),
            ]
        rows += [
            ("images", f"{self.n:,} of {self.source['name']}"),
            ("against", f"{self.reference['n']:,} of {self.reference['name']}, {self.reference['sha256'][:16]}"),
            ("network", f"inception-2015-12-05, {self.weights[:16]}"),
            ("input", self.preprocessing + (", gray replicated" if self.gray == "replicate" else "")),
        ]
        if how is not None:
            rows += [
                ("protocol", how.protocol),
                ("checkpoint", f"step {how.checkpoint}, {how.weights}"),
                ("sampler", f"{how.sampler}, {how.evaluations} function evaluations"),
                ("seed", str(how.seed)),
                ("diverged chains", f"{how.diverged} of {how.of}, left out"),
            ]
            rows += [("data", told_of_data(how.data))] if how.data is not None else []
        where = f"{self.environment['devices']} × {self.environment['device']}"
        return [*rows, ("minutes", f"{self.minutes:.1f} on {where}")]


def _kid_told(value: KID, n: int) -> str:
    """Format KID, without the spread if every subset has all n images, as it would be that of the reference only."""
    if value.size >= n:
        return f"{value.mean:.5f} (mean of {value.subsets} subsets, all {n:,} images in each)"
    return f"{value.mean:.5f} ± {value.deviation:.5f} (deviation of {value.subsets} subsets of {value.size:,})"
