"""Is a run's model right? Everything that can be said of it without looking at samples, in one table.

    assessment = assess(load_run(path))
    assessment.record()                            for a file

Models that are learnt by denoising know the data with their noise on it: Fisher divergence, KSD and the posterior's gap
are those at examples with the noise that the run was trained with, which `noise` changes. The likelihood of a GRBM
and its score matching loss are those at the examples as they are; a deep model has the denoising loss in its place.
"""

import math
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.app.recipes.samples import check_seed
from vages.app.recipes.units import Units
from vages.app.report import assessment_figure, chains_figure, figure_png, number_with_error
from vages.app.runs.dataset import told_of_data
from vages.app.runs.kept import new_folder
from vages.app.runs.loaded import Run
from vages.bounds import Bounds, check_fields, check_number
from vages.data import Splits
from vages.environment import environment
from vages.evaluation import (
    CriticTraining,
    Estimate,
    FisherDivergence,
    MLPCritic,
    PosteriorGap,
    Score,
    SteinTest,
    VariationalScore,
    bits_per_dim,
    fisher_divergence,
    flow_likelihood,
    ksd_test,
    level_normalizers,
    log_likelihood,
    posterior_gap,
    score_batch,
    score_matching_loss,
    sliced_score_matching_loss,
)
from vages.models import EBLVM, GRBM, InContext, NoiseConditionalEBLVM, TractableEBLVM
from vages.posteriors import Corrector, ExactPosterior, Posterior
from vages.samplers import MCMC, Gibbs, SamplingWarning, sample
from vages.samplers.gibbs import can_gibbs
from vages.samplers.program import Progress
from vages.samplers.samples import diagnose
from vages.terminal import printable

LONG = 1000  # dimensions, above which traces are estimated
LOSS = "the Fisher divergence up to a constant of the data"
_PASSES = 256  # samples of q for each log p(v) of a normalized model
_ODE = 100  # examples whose likelihood is computed by the ODE as well
_FEW = 20  # the effective number of draws below which log Z is not told


@dataclass(frozen=True)
class Sizes:
    """How much is looked at: examples, the critic's iterations and width, samples of h, replicates of the bootstrap.

    `annealing` is the number of chains and of temperatures of AIS, where the latents cannot be enumerated.
    """

    examples: Annotated[int, Bounds(20, 10**6)] = 1000
    critic_steps: Annotated[int, Bounds(1, 10**7)] = 2000
    critic_width: Annotated[int, Bounds(1, 2**14)] = 256
    samples: Annotated[int, Bounds(4, 2**16)] = 16
    replicates: Annotated[int, Bounds(1, 10**6)] = 1000
    annealing: Annotated[int, Bounds(2, 10**6)] = 1000

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Row:
    """One number, or none, and what it means."""

    name: str
    value: float | None
    standard_error: float | None
    means: str


@dataclass(frozen=True)
class Assessment:
    """The rows, and what they depend on."""

    run: str
    checkpoint: int
    rows: list[Row]
    examples: int
    noise: float
    sizes: Sizes
    seed: int
    minutes: float
    data: dict[str, Any] | None = None
    """The name and fingerprints of the data, and whether they are the run's own."""
    trace: dict[str, np.ndarray] | None = None
    """Chains of the model (chains, draws, …), for a picture; not in the record."""

    def record(self) -> dict[str, Any]:
        """Plain values, for a file; what is not finite is None."""
        rows = [{name: _finite(value) for name, value in asdict(row).items()} for row in self.rows]
        own = {name: value for name, value in asdict(replace(self, trace=None)).items() if name != "trace"}
        return {**own, "rows": rows, "environment": environment()}

    def table(self) -> list[tuple[str, str, str]]:
        """What a table of it says, top to bottom: names, numbers, meanings."""
        told = [(row.name, number_with_error(row.value, row.standard_error), row.means) for row in self.rows]
        about = f"{self.examples:,} examples, with noise of {self.noise:.3g} unless said otherwise, seed {self.seed}"
        if self.data is not None:
            told.append(("data", "own" if self.data["own"] else "other", told_of_data(self.data)))
        return [*told, ("checkpoint", f"{self.checkpoint:,}", about), ("minutes", f"{self.minutes:.1f}", "")]


class Subject(NamedTuple):
    """What is assessed."""

    model: EBLVM
    posterior: Posterior
    splits: Splits
    noise: float  # of the data that the model was trained to know
    corrector: Corrector | None
    units: Units | None = None  # of the data, where examples are standardized


def assess(
    run: Run,
    *,
    sizes: Sizes | None = None,
    noise: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Assessment:
    """Likelihood where it can be had, score matching loss, Fisher divergence, KSD with its p-value, posterior's gap."""
    check_seed(seed)
    if noise is not None:
        check_noise(noise)
    began, sizes = time.perf_counter(), Sizes() if sizes is None else sizes
    subject = subject_of(run, noise)
    rows = assess_subject(jax.random.key(seed), subject, sizes, progress)
    mixing, trace = mixing_rows(jax.random.key(seed), subject.model)
    rows += mixing
    if trace is not None:
        trace = {name: run.in_units(x) if name == "v" else x for name, x in trace.items()}
    minutes = (time.perf_counter() - began) / 60
    examples = len(held_out(jax.random.key(0), subject.splits, sizes.examples))
    path = printable(run.path)
    return Assessment(path, run.step, rows, examples, subject.noise, sizes, seed, minutes, run.about_data, trace)


def check_noise(noise: float) -> None:
    """Raise unless it is the standard deviation of some noise, or of none."""
    if not noise >= 0:
        raise ValueError(f"noise: expected a standard deviation of 0 or more, got {noise}")
    check_number("noise", noise, Bounds(0, 1e6))


def keep_assessment(run: Run, assessment: Assessment) -> Path:
    """Write the assessment and its figure to the first free RUN/evaluation-NUMBER."""
    record = assessment.record()
    picture = figure_png(assessment_figure([asdict(row) for row in assessment.rows], record["run"]))
    chains = None if assessment.trace is None else figure_png(chains_figure(assessment.trace))
    with new_folder(run, "evaluation", None) as folder:
        folder.write_bytes("evaluation.png", picture)
        if chains is not None:
            folder.write_bytes("chains.png", chains)
        folder.write_json("result.json", record)
        return folder.path


def assess_subject(key: PRNGKeyArray, subject: Subject, sizes: Sizes, progress: Progress | None) -> list[Row]:
    """The rows of any model with its posterior and data."""
    keys = jax.random.split(key, 10)
    model, posterior = subject.model, subject.posterior
    latents = model.h.size > 0
    noisy = lambda key, v: v + subject.noise * jax.random.normal(key, v.shape, v.dtype)
    clean = held_out(keys[0], subject.splits, sizes.examples)
    test = noisy(keys[1], clean)
    train = noisy(keys[2], some_rows(keys[3], subject.splits.train, 20 * sizes.examples))
    rows = likelihood_rows(keys[4], model, posterior, clean, sizes)
    if subject.units is not None:
        rows = [_in_units(row, subject.units.log_volume) for row in rows] + [_standardized_row(subject.units)]
    if isinstance(model, TractableEBLVM):
        score: Score = model.score
        rows.append(_row("score matching loss", _sm_loss(keys[5], model, clean), f"{LOSS}: lower is better"))
    else:
        drawn = sizes.samples if latents else 1
        score = VariationalScore(model, posterior if latents else ExactPosterior(), drawn, subject.corrector)
        if subject.noise:
            means = f"{LOSS}, both with noise of {subject.noise:.3g}: lower is better"
            loss = _denoising_loss(keys[5], score, clean, test, subject.noise)
            rows.append(_row("denoising score matching loss", loss, means))
    found = _fisher(keys[6], score, train, test, sizes, progress)
    rows.append(_fisher_row(found, len(train)))
    rows += _ksd_rows(ksd_test(keys[7], score, test, replicates=sizes.replicates), found)
    if latents:
        gap = posterior_gap(keys[8], model, posterior, test, samples=max(4, sizes.samples), corrector=subject.corrector)
        rows += _gap_rows(gap)
    return rows


def mixing_rows(key: PRNGKeyArray, model: EBLVM) -> tuple[list[Row], dict[str, np.ndarray] | None]:
    """Whether chains of the model mix, and the chains; nothing for long v, which the paper samples otherwise."""
    if model.v.size > LONG:
        return [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # the rows say it
        drawn = sample(key, model, 1, chains=16, sampler=Gibbs() if can_gibbs(model) else MCMC("hmc"))
    said = "16 chains of the model, started far apart"
    rows = [
        Row("R̂", drawn.worst_rhat, None, f"of {said}, the worst coordinate: at most 1.05 where they agree"),
        Row("effective sample size", _least(drawn.trace), None, f"of {said}, 250 draws each, the worst coordinate"),
    ]
    assert drawn.trace is not None
    return rows, {name: np.asarray(x) for name, x in drawn.trace.items()}


def _least(trace: Any) -> float:
    ess = diagnose({name: x[None] for name, x in trace.items()})[1]
    return min(float(np.min(x)) for x in ess.values())


def subject_of(run: Run, noise: float | None) -> Subject:
    """What is assessed of a run; of a noise-conditional model, its level that is the noise."""
    noise = run.recipe.noise_std if noise is None else float(noise)
    model = run.model
    if isinstance(model, NoiseConditionalEBLVM):  # which knows the data with any noise on them
        model = InContext(model, {"sigma": max(noise, model.sigma_min)})
    latents = getattr(run.recipe.objective, "latents", None)
    corrector = getattr(latents, "corrector", None) if run.has_latents else None
    return Subject(model, run.posterior, run.data.splits, noise, corrector, run.units)


def held_out(key: PRNGKeyArray, splits: Splits, examples: int) -> Array:
    """Test examples, or training ones where there are none."""
    return some_rows(key, splits.test if len(splits.test) else splits.train, examples)


def some_rows(key: PRNGKeyArray, v: np.ndarray, examples: int) -> Array:
    """So many random rows, or all, in their order."""
    rows = np.asarray(jax.random.permutation(key, len(v)))[:examples]
    return jnp.asarray(v[np.sort(rows)])


def _sm_loss(key: PRNGKeyArray, model: TractableEBLVM, v: Array) -> Estimate:
    long = math.prod(model.v.shape) > LONG
    return sliced_score_matching_loss(key, model.score, v) if long else score_matching_loss(model.score, v)


def likelihood_rows(key: PRNGKeyArray, model: EBLVM, posterior: Posterior, v: Array, sizes: Sizes) -> list[Row]:
    """The likelihood, or two of them where log Z is estimated, forward and reverse."""
    if isinstance(model, InContext) and isinstance(model.model, NoiseConditionalEBLVM) and model.normalized:
        return _normalized_rows(key, model.model, posterior, v, sizes)
    if model.v.size > LONG:
        said = f"not estimated: AIS takes hours with {model.v.size:,} dimensions, and says little"
        return [Row("log-likelihood", None, None, said)]
    chains = sizes.annealing if isinstance(model, GRBM) else min(sizes.annealing, 200)  # whose moves cost gradients
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", SamplingWarning)
        found = log_likelihood(key, model, posterior, v, chains=chains, temperatures=sizes.annealing)
    means = f"the mean of log p(v) of {len(v):,} examples without noise: higher is better, between models of one data"
    if found.exact:
        return [Row("log-likelihood", found.mean, found.error, f"{means}; log Z is exact")]
    if not math.isfinite(found.forward + found.reverse):
        said = "chains ran off on the way to log Z: the energy may have no normalizer"
        return [Row("log-likelihood", math.nan, None, said)]
    gap = f"reverse log Z less forward is {found.log_partition.gap:.3g}, small where both are right"
    doubt = "; the chains for log Z have not mixed" if warned else ""
    return [
        Row("log-likelihood, log Z forward", found.forward, found.error, f"{means}; {gap}{doubt}"),
        Row(
            "log-likelihood, log Z reverse",
            found.reverse,
            found.error,
            f"of the same examples, with reverse log Z{doubt}",
        ),
    ]


def _in_units(row: Row, log_volume: float) -> Row:
    """A likelihood in the data's units: log p(v) = log p(u) − Σ log scale, where u are the standardized data."""
    if not row.name.startswith("log-likelihood") or row.value is None:
        return row
    told = f"{row.means}; in the data's units, {log_volume:.6g} nats less than of standardized data"
    return replace(row, value=row.value - log_volume, means=told)


def _standardized_row(units: Units) -> Row:
    said = "Σ log scale of the standardized data; noise, scores and distances are in standard deviations of the data"
    return Row("log-volume", units.log_volume, None, said)


def _normalized_rows(
    key: PRNGKeyArray, model: NoiseConditionalEBLVM, posterior: Posterior, v: Array, sizes: Sizes
) -> list[Row]:
    """The likelihood in one pass, at the lowest level, and what speaks for it: the ODE's, and log Z at some levels.

    Images have the noise of that level on them, which is not small beside a grey level, and their bits beside it.
    """
    keys, clean = jax.random.split(key, 4), v
    if len(model.v.shape) == 3:
        v = v + model.sigma_min * jax.random.normal(keys[3], v.shape, v.dtype)
    few = v[: min(len(v), _ODE)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # the rows say it
        found = log_likelihood(keys[0], model, posterior, v, samples=_PASSES)
        flow = flow_likelihood(keys[1], model, posterior, few, samples=4)
    quality = "" if found.density.exact else f"; effective share of q's samples {_share(found.density.ess):.2f}"
    means = f"the mean of log p(v) of {len(v):,} examples in one pass, noise of {model.sigma_min:.3g}: higher is better"
    rows = [Row("log-likelihood", found.mean, found.error, f"{means}{quality}")]
    if v is not clean:
        how = {"width": 1 / 255, "noise": "gaussian", "one_pass": True, "samples": _PASSES}
        bits = bits_per_dim(keys[3], model, posterior, clean, **how)
        rows.append(_row("bits per dimension", bits, "of grey levels of 1 / 255, in one pass: lower is better"))
    one_pass = np.asarray(found.density.value[: len(few)], np.float64)
    first, second = (np.argsort(np.argsort(values)) for values in (flow.value, one_pass))
    alike = float(np.corrcoef(first, second).min())
    said = f"of {len(few)} examples, 0 where both are right; rank correlation {alike:.3f}"
    rows.append(_row("one pass less ODE, nats", Estimate.of(jnp.asarray(one_pass - flow.value)), said))
    for level in level_normalizers(keys[2], model, posterior, v):
        how = "on a grid" if math.isinf(level.ess) else f"from draws with an effective number of {level.ess:.0f}"
        known = math.isinf(level.ess) or level.ess >= _FEW
        means = f"{how}: 0 where the model is normalized" if known else f"{how}, too few to tell"
        name = f"log Z at noise of {level.sigma:.3g}"
        rows.append(Row(name, level.value if known else None, level.error if known else None, means))
    return rows


def _share(ess: Array) -> float:
    return float(np.median(np.asarray(ess))) / _PASSES


def _denoising_loss(key: PRNGKeyArray, score: Score, clean: Array, noisy: Array, noise: float) -> Estimate:
    """½ E ‖s − ∇ log p(ṽ | v)‖² (Vincent 2011), by two independent estimates of s, whose noise then leaves the mean."""
    target = (clean - noisy) / noise**2
    first, second = (score_batch(key, score, noisy) - target for key in jax.random.split(key))
    return Estimate.of(0.5 * jnp.sum((first * second).reshape(len(clean), -1), axis=1))


def _fisher(
    key: PRNGKeyArray, score: Score, train: Array, test: Array, sizes: Sizes, progress: Progress | None
) -> FisherDivergence:
    """The critic that is best on a tenth of the training examples; q stays as the run left it."""
    for_critic, for_training = jax.random.split(key)
    held = max(10, len(train) // 10)
    how = CriticTraining(
        steps=sizes.critic_steps,
        batch=min(100, len(train) - held),
        learning_rate=1e-3,
        posterior_steps=0,
        checks=min(10, sizes.critic_steps),
    )
    critic = MLPCritic(for_critic, train.shape[1:], width=sizes.critic_width)
    return fisher_divergence(
        for_training, score, train[held:], train[:held], test, critic=critic, how=how, progress=progress
    )


def _fisher_row(found: FisherDivergence, examples: int) -> Row:
    """The divergence; none where no critic was above 0, which says as little of a wrong model as of a right one."""
    if not found.informative:
        said = f"not informative: a critic trained on {examples:,} examples found nothing; give more with --examples"
        return Row("Fisher divergence", None, None, said)
    means = "½ E ‖∇ log p − ∇ log p_D‖² as far as a critic sees it, a lower bound: 0 where the model is right"
    return _row("Fisher divergence", found.best, means)


def _disagreement(test: SteinTest, found: FisherDivergence) -> str:
    """What to make of a test and a divergence that say different things."""
    if test.p_value <= 0.05 and not found.informative:
        return "; the critic of the Fisher divergence found nothing, but this test did: believe the test"
    if test.p_value > 0.05 and found.informative and found.best.mean > 3 * found.best.error:
        return "; the Fisher divergence disagrees, and is well above 0: believe that"
    return ""


def _ksd_rows(test: SteinTest, found: FisherDivergence) -> list[Row]:
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


def _gap_rows(gap: PosteriorGap) -> list[Row]:
    meanings = {
        "fisher": ("posterior gap, Fisher", gap.meaning()),
        "kl": ("posterior gap, KL", gap.meaning() if gap.fisher is None else "KL(q ‖ p(h | v)), which bounds as well"),
        "vaes_bias": ("squared bias of VaES", "‖E_q VaES − ∇ log p‖² itself, the score being known"),
        "ksd": ("KSD of h, samples of q", "of samples of q from p(h | v)"),
        "corrected_ksd": ("KSD of h, corrected", "of the same after the Langevin corrector: lower is better"),
    }
    values = {field: getattr(gap, field) for field in meanings}
    return [_row(meanings[field][0], value, meanings[field][1]) for field, value in values.items() if value is not None]


def _row(name: str, estimate: Estimate, means: str) -> Row:
    return Row(name, estimate.mean, estimate.error, means)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
