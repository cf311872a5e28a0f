"""What an assessment is made of: rows of numbers, and how much is looked at for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from vages.bounds import Bounds, check_fields
from vages.evaluation import Estimate, FisherDivergence, PosteriorGap, SteinTest
from vages.samplers import Samples
from vages.samplers.samples import WORST_RHAT

Stage = Callable[[str], object]  # is told the name of each part of the work before it
LONG = 1000  # dimensions, above which traces are estimated, and log Z is not


@dataclass(frozen=True)
class Sizes:
    """How much is looked at: examples, the critic's iterations and width, samples of h, replicates of the bootstrap.

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
    """One number, or none, and what it means."""

    name: str
    value: float | None
    standard_error: float | None
    means: str


def estimate_row(name: str, estimate: Estimate, means: str) -> Row:
    """The row of a mean over examples."""
    return Row(name, estimate.mean, estimate.error, means)


def mixing_rows(drawn: Samples, chains: int, draws: int, rows: list[Row]) -> list[Row]:
    """Whether chains of the model mix; if not, which of the other `rows` depend on them, and what to do."""
    said = f"of {chains} chains of the model, started far apart"
    agree = f"{said}, the worst coordinate: at most {WORST_RHAT} where they agree"
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
    """The divergence; none where no critic was above 0, which says as little of a wrong model as of a right one."""
    if not found.informative:
        known = f"all {examples:,} training examples" if all_of_them else f"{examples:,} examples"
        more = "; there are no more to train it on" if all_of_them else "; give more with --examples"
        said = f"not informative: a critic trained on {known} found nothing{more}"
        return Row("Fisher divergence", None, None, said)
    means = "½ E ‖∇ log p − ∇ log p_D‖² as far as a critic sees it, a lower bound: 0 where the model is right"
    return estimate_row("Fisher divergence", found.best, means)


def _disagreement(test: SteinTest, found: FisherDivergence) -> str:
    """What to make of a test and a divergence that say different things."""
    if test.p_value <= 0.05 and not found.informative:
        return "; the critic of the Fisher divergence found nothing, but this test did: believe the test"
    if test.p_value > 0.05 and found.informative and found.best.mean > 3 * found.best.error:
        return "; the Fisher divergence disagrees, and is well above 0: believe that"
    return ""


def ksd_rows(test: SteinTest, found: FisherDivergence) -> list[Row]:
    """Statistic and p-value, and what to make of them where the divergence says something else."""
    kernel = f"{test.kernel} kernel of bandwidth {test.bandwidth:.3g}"
    differ = _disagreement(test, found)
    verdict = "the data speak against the model" if test.p_value <= 0.05 else "the data do not speak against the model"
    return [
        Row("KSD", test.statistic, test.standard_error, f"kernelised Stein discrepancy, {kernel}: 0 where it is right"),
        Row(
            "KSD p-value",
            test.p_value,
            None,
            f"of a model that is right, from {test.n} examples: {verdict} at 5 %{differ}",
        ),
    ]


def gap_rows(gap: PosteriorGap) -> list[Row]:
    """What is known of the gap."""
    meanings = {
        "fisher": ("posterior gap, Fisher", gap.meaning()),
        "kl": ("posterior gap, KL", gap.meaning() if gap.fisher is None else "KL(q ‖ p(h | v)), which bounds as well"),
        "vaes_bias": ("squared bias of VaES", "‖E_q VaES − ∇ log p‖² itself, the score being known"),
        "ksd": ("KSD of h, samples of q", "of samples of q from p(h | v)"),
        "corrected_ksd": ("KSD of h, corrected", "of the same after the Langevin corrector: lower is better"),
    }
    values = {field: getattr(gap, field) for field in meanings}
    return [
        estimate_row(meanings[field][0], value, meanings[field][1])
        for field, value in values.items()
        if value is not None
    ]
