"""Rows of an assessment, and its sample sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from vages.bounds import Bounds, check_fields
from vages.evaluation import Estimate, FisherDivergence, PosteriorGap, SteinTest
from vages.samplers import Samples
from vages.samplers.samples import WORST_RHAT

Stage = Callable[[str], object]  # called with the name of each stage of the work before it starts
LONG = 1000  # dimensions above which traces are estimated, and log Z is not computed


@dataclass(frozen=True)
class Sizes:
    """Number of examples, iterations and width of the critic, samples of h, and replicates of the bootstrap.

    The critic stops after 50 passes over its examples. `annealing` is the number of temperatures of AIS, with half as
    many chains; large networks get fewer of both.
    """

    examples: Annotated[int, Bounds(20, 10**6)] = 1000
    critic_steps: Annotated[int, Bounds(1, 10**7)] = 2000
    critic_width: Annotated[int, Bounds(1, 2**14)] = 256
    samples: Annotated[int, Bounds(4, 2**16)] = 16
    replicates: Annotated[int, Bounds(1, 10**6)] = 1000
    annealing: Annotated[int, Bounds(2, 10**6)] = 500

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Row:
    """A value, or None, with its standard error and its meaning."""

    name: str
    value: float | None
    standard_error: float | None
    means: str


def estimate_row(name: str, estimate: Estimate, means: str) -> Row:
    """Return the row of a mean over examples."""
    return Row(name, estimate.mean, estimate.error, means)


def mixing_rows(drawn: Samples, chains: int, draws: int, rows: list[Row]) -> list[Row]:
    """Return R̂ and effective sample size of the chains; if they do not mix, name the `rows` that depend on them."""
    said = f"of {chains} chains of the model with dispersed starts"
    agree = f"{said}, the worst coordinate: at most {WORST_RHAT} if they agree"
    if not drawn.worst_rhat <= WORST_RHAT:
        using = [row.name for row in rows if "reverse" in row.name]
        whose = " and ".join(f"“{name}”" for name in using)
        depends = f"do not trust {whose}, computed from them" if using else "no other row depends on them"
        agree += f"; chains do not travel between separated modes: {depends}"
        agree += "; try MCMC(temperatures=(1, 2, 4)) in Python"
    return [
        Row("R̂", drawn.worst_rhat, None, agree),
        Row("effective sample size", drawn.least_ess, None, f"{said}, {draws} draws each, the worst coordinate"),
    ]


def fisher_row(found: FisherDivergence, examples: int, *, all_of_them: bool) -> Row:
    """Return the row of the divergence; None if no critic was above 0, which is inconclusive."""
    if not found.informative:
        known = f"all {examples:,} training examples" if all_of_them else f"{examples:,} examples"
        more = "; there are no more to train it on" if all_of_them else "; give more with --examples"
        said = f"not informative: a critic trained on {known} found no difference{more}"
        return Row("Fisher divergence", None, None, said)
    means = "½ E ‖∇ log p − ∇ log p_D‖² estimated by a critic, a lower bound: 0 if the model is correct"
    return estimate_row("Fisher divergence", found.best, means)


def _disagreement(test: SteinTest, found: FisherDivergence) -> str:
    """Return advice for a test and a divergence that disagree, else an empty string."""
    if test.p_value <= 0.05 and not found.informative:
        return "; the critic of the Fisher divergence found no difference, but this test did: trust the test"
    if test.p_value > 0.05 and found.informative and found.best.mean > 3 * found.best.error:
        return "; the Fisher divergence disagrees, and is well above 0: trust the divergence"
    return ""


def ksd_rows(test: SteinTest, found: FisherDivergence) -> list[Row]:
    """Return statistic and p-value, with advice if the Fisher divergence disagrees."""
    kernel = f"{test.kernel} kernel of bandwidth {test.bandwidth:.3g}"
    differ = _disagreement(test, found)
    verdict = "rejected" if test.p_value <= 0.05 else "not rejected"
    return [
        Row(
            "KSD",
            test.statistic,
            test.standard_error,
            f"kernelized Stein discrepancy, {kernel}: 0 if the model is correct",
        ),
        Row(
            "KSD p-value",
            test.p_value,
            None,
            f"for the hypothesis that the model is correct, from {test.n} examples: {verdict} at 5 %{differ}",
        ),
    ]


def gap_rows(gap: PosteriorGap) -> list[Row]:
    """Return a row for each known quantity of the gap."""
    meanings = {
        "fisher": ("posterior gap, Fisher", gap.meaning()),
        "kl": (
            "posterior gap, KL",
            gap.meaning() if gap.fisher is None else "KL(q ‖ p(h | v)), which also gives bounds",
        ),
        "vaes_bias": ("squared bias of VaES", "‖E_q VaES − ∇ log p‖², computed with the exact score"),
        "ksd": ("KSD of h, samples of q", "of samples of q with respect to p(h | v)"),
        "corrected_ksd": ("KSD of h, corrected", "of the same after the Langevin corrector: lower is better"),
    }
    values = {field: getattr(gap, field) for field in meanings}
    return [
        estimate_row(meanings[field][0], value, meanings[field][1])
        for field, value in values.items()
        if value is not None
    ]
