"""Assess a run's model in one table: likelihood, score matching loss, Fisher divergence, KSD and posterior gap.

    assessment = assess(load_run(path))
    assessment.record()                            for a file

Models that are trained by denoising learn the density of noisy data. Fisher divergence, KSD and posterior gap are
therefore computed at examples with the noise that the run was trained with; `noise` overrides it. The likelihood of a
GRBM and its score matching loss are computed at clean examples; a deep model has the denoising loss instead.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from vages.app.recipes.samples import check_seed
from vages.app.recipes.units import Units
from vages.app.report import assessment_figure, chains_figure, figure_png, number_with_error
from vages.app.runs.assessment_rows import (
    LONG,
    Row,
    Sizes,
    Stage,
    estimate_row,
    fisher_row,
    gap_rows,
    ksd_rows,
    mixing_rows,
)
from vages.app.runs.dataset import told_of_data
from vages.app.runs.kept import new_folder
from vages.app.runs.likelihoods import conditional_model, gaussian_rows, has_cheap_moves, likelihood_rows
from vages.app.runs.loaded import Run
from vages.bounds import Bounds, check_number
from vages.data import Splits
from vages.distributions import flat_noise
from vages.environment import environment
from vages.evaluation import (
    CriticTraining,
    Estimate,
    FisherDivergence,
    MLPCritic,
    Score,
    VariationalScore,
    fisher_divergence,
    ksd_test,
    posterior_gap,
    score_batch,
    score_matching_loss,
    sliced_score_matching_loss,
)
from vages.evaluation.fisher import LEAST
from vages.models import EBLVM, InContext, NoiseConditionalEBLVM, TractableEBLVM
from vages.posteriors import Corrector, ExactPosterior, Posterior
from vages.samplers import MCMC, Gibbs, Samples, SamplingWarning, sample
from vages.samplers.gibbs import can_gibbs
from vages.samplers.program import Progress
from vages.terminal import printable
from vages.threads import in_threads

_EPOCHS = 50  # of a critic at most, to limit overfitting
_CHAINS, _DRAWS = 16, 250  # of the model, to assess mixing and to start reverse AIS
LOSS = "the Fisher divergence up to a constant that depends only on the data"


@dataclass(frozen=True)
class Assessment:
    """The rows of an assessment, and what they depend on."""

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
    """Chains of the model (chains, draws, …), for a figure; not part of the record."""

    def record(self) -> dict[str, Any]:
        """Return plain values for a JSON file; non-finite values become None."""
        rows = [{name: _finite(value) for name, value in asdict(row).items()} for row in self.rows]
        own = {name: value for name, value in asdict(replace(self, trace=None)).items() if name != "trace"}
        return {**own, "rows": rows, "environment": environment()}

    def table(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table: names, numbers, meanings."""
        told = [(row.name, number_with_error(row.value, row.standard_error), row.means) for row in self.rows]
        about = f"{self.examples:,} examples, with noise of {self.noise:.3g} unless stated otherwise, seed {self.seed}"
        if self.data is not None:
            told.append(("data", "own" if self.data["own"] else "other", told_of_data(self.data)))
        return [*told, ("checkpoint", f"{self.checkpoint:,}", about), ("minutes", f"{self.minutes:.1f}", "")]


class Subject(NamedTuple):
    """A model to be assessed, with its posterior and data."""

    model: EBLVM
    posterior: Posterior
    splits: Splits
    noise: float  # standard deviation of the noise on the examples
    corrector: Corrector | None
    units: Units | None = None  # of the data, if examples are standardized


def assess(
    run: Run,
    *,
    sizes: Sizes | None = None,
    noise: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    stage: Stage = str,
) -> Assessment:
    """Compute the likelihood if possible, score matching loss, Fisher divergence, KSD test, and posterior gap."""
    check_seed(seed)
    if noise is not None:
        check_noise(noise)
    began, sizes = time.perf_counter(), Sizes() if sizes is None else sizes
    subject = subject_of(run, noise)
    _check_enough(subject.splits)
    rows, drawn = assess_subject(jax.random.key(seed), subject, sizes, progress, stage)
    rows += [] if drawn is None else mixing_rows(drawn, _CHAINS, _DRAWS, rows)
    trace = None if drawn is None else {name: np.asarray(x) for name, x in (drawn.trace or {}).items()}
    if trace is not None:
        trace = {name: run.in_units(x) if name == "v" else x for name, x in trace.items()}
    minutes = (time.perf_counter() - began) / 60
    examples = len(held_out(jax.random.key(0), subject.splits, sizes.examples))
    path = printable(run.path)
    return Assessment(path, run.step, rows, examples, subject.noise, sizes, seed, minutes, run.about_data, trace)


def _check_enough(splits: Splits) -> None:
    """Raise ValueError if there are too few examples for a critic and a Stein test."""
    train, test = len(splits.train), len(splits.test) or len(splits.train)
    if train < 2 * LEAST or test < LEAST:
        raise ValueError(
            f"data: expected at least {2 * LEAST} training and {LEAST} test examples to evaluate a model, got {train} "
            f"and {test}; give more with --data"
        )


def check_noise(noise: float) -> None:
    """Raise ValueError unless `noise` is a standard deviation; 0 means no noise."""
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


def assess_subject(
    key: PRNGKeyArray, subject: Subject, sizes: Sizes, progress: Progress | None, stage: Stage = str
) -> tuple[list[Row], Samples | None]:
    """Return the rows of an assessment, and the chains of the model that some rows depend on.

    Rows of the density and rows of the score are independent and computed in two threads; for long v, one after the
    other to save memory.
    """
    keys, model = jax.random.split(key, 11), subject.model
    noisy = lambda key, v: v + subject.noise * flat_noise(jax.random.normal, key, v.shape, v.dtype)
    clean = held_out(keys[0], subject.splits, sizes.examples)
    clean_train = some_rows(keys[3], subject.splits.train, 20 * sizes.examples)
    test, train = noisy(keys[1], clean), noisy(keys[2], clean_train)

    def checked(check: Callable[[], None]) -> tuple[Progress, Stage]:
        def shown(done: int, total: int) -> None:
            check()
            if progress is not None:
                progress(done, total)

        def next_stage(name: str) -> None:
            check()
            stage(name)

        return shown, next_stage

    def of_density(check: Callable[[], None]) -> tuple[list[Row], Samples | None]:
        _, next_stage = checked(check)
        drawn = model_chains(keys[10], model, next_stage)
        return _density_rows(keys[4], subject, clean, clean_train, sizes, drawn, next_stage), drawn

    def of_score(check: Callable[[], None]) -> list[Row]:
        shown, next_stage = checked(check)
        rows = _score_rows(keys, subject, clean, test, train, sizes, shown, next_stage)
        shown(1, 1)  # the last stage is over
        return rows

    if model.v.size > LONG:
        (rows, drawn), more = of_density(_go_on), of_score(_go_on)
    else:
        (rows, drawn), more = in_threads(of_density, of_score)
    return rows + more, drawn


def _go_on() -> None:
    """Do nothing: the check of a part that no other part can stop."""


def _density_rows(
    key: PRNGKeyArray,
    subject: Subject,
    clean: Array,
    clean_train: Array,
    sizes: Sizes,
    drawn: Samples | None,
    stage: Stage,
) -> list[Row]:
    """Return the likelihood of clean examples, and that of a Gaussian for comparison."""
    model, units = subject.model, subject.units
    rows = likelihood_rows(key, model, subject.posterior, clean, sizes, drawn, stage, units)
    rows += gaussian_rows(model, clean_train, clean, subject.noise, rows)
    return rows if units is None else [*(_in_units(row, units.log_volume) for row in rows), _standardized_row(units)]


def _score_rows(
    keys: Key[Array, "parts"],
    subject: Subject,
    clean: Array,
    test: Array,
    train: Array,
    sizes: Sizes,
    progress: Progress,
    stage: Stage,
) -> list[Row]:
    """Return the rows that depend on the model's score and posterior; `test` and `train` are noisy examples."""
    model, posterior, rows = subject.model, subject.posterior, []
    latents = model.h.size > 0
    stage("score matching loss")
    if isinstance(model, TractableEBLVM):
        score: Score = model.score
        rows.append(estimate_row("score matching loss", _sm_loss(keys[5], model, clean), f"{LOSS}: lower is better"))
    else:
        count = sizes.samples if latents else 1
        score = VariationalScore(model, posterior if latents else ExactPosterior(), count, subject.corrector)
        if subject.noise:
            means = f"{LOSS}, both with noise of {subject.noise:.3g}: lower is better"
            loss = _denoising_loss(keys[5], score, clean, test, subject.noise)
            rows.append(estimate_row("denoising score matching loss", loss, means))
    stage("Fisher divergence, training a critic")
    found = _fisher(keys[6], score, train, test, sizes, progress)
    rows.append(fisher_row(found, len(train), all_of_them=len(train) == len(subject.splits.train)))
    stage("Stein test")
    rows += ksd_rows(ksd_test(keys[7], score, test, replicates=sizes.replicates), found)
    if latents:
        stage("posterior gap")
        gap = posterior_gap(keys[8], model, posterior, test, samples=max(4, sizes.samples), corrector=subject.corrector)
        rows += gap_rows(gap)
    return rows


def model_chains(key: PRNGKeyArray, model: EBLVM, stage: Stage) -> Samples | None:
    """Return all draws of 16 chains; None for noise-conditional models and for long v."""
    if model.v.size > LONG or conditional_model(model) is not None:
        return None
    stage("chains of the model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # reported in the rows
        hmc = MCMC("hmc") if has_cheap_moves(model) else MCMC("hmc", warmup=300, leapfrog=5)
        sampler = Gibbs() if can_gibbs(model) else hmc
        return sample(key, model, _CHAINS * _DRAWS, chains=_CHAINS, sampler=sampler)


def subject_of(run: Run, noise: float | None) -> Subject:
    """Return the subject of a run; a noise-conditional model is assessed at the level of the noise."""
    noise = run.recipe.noise_std if noise is None else float(noise)
    model = run.model
    if isinstance(model, NoiseConditionalEBLVM):
        model = InContext(model, {"sigma": max(noise, model.sigma_min)})
    latents = getattr(run.recipe.objective, "latents", None)
    corrector = getattr(latents, "corrector", None) if run.has_latents else None
    return Subject(model, run.posterior, run.data.splits, noise, corrector, run.units)


def held_out(key: PRNGKeyArray, splits: Splits, examples: int) -> Array:
    """Return random test examples, or training examples if there is no test data."""
    return some_rows(key, splits.test if len(splits.test) else splits.train, examples)


def some_rows(key: PRNGKeyArray, v: np.ndarray, examples: int) -> Array:
    """Return a random choice of `examples` rows, or all, in their original order."""
    rows = np.asarray(jax.random.permutation(key, len(v)))[:examples]
    return jnp.asarray(v[np.sort(rows)])


def _sm_loss(key: PRNGKeyArray, model: TractableEBLVM, v: Array) -> Estimate:
    long = math.prod(model.v.shape) > LONG
    return sliced_score_matching_loss(key, model.score, v) if long else score_matching_loss(model.score, v)


def _in_units(row: Row, log_volume: float) -> Row:
    """A likelihood in the data's units: log p(v) = log p(u) − Σ log scale, where u are the standardized data."""
    if not row.name.startswith("log-likelihood") or row.value is None:
        return row
    told = f"{row.means}; in the data's units, {log_volume:.6g} nats less than for standardized data"
    return replace(row, value=row.value - log_volume, means=told)


def _standardized_row(units: Units) -> Row:
    said = (
        "Σ log scale, in nats, of the standardized data; noise, scores and distances are in standard deviations of the "
        "data"
    )
    return Row("log-volume", units.log_volume, None, said)


def _denoising_loss(key: PRNGKeyArray, score: Score, clean: Array, noisy: Array, noise: float) -> Estimate:
    """½ E ‖s − ∇ log p(ṽ | v)‖² (Vincent 2011), by two independent estimates of s, so that it is unbiased."""
    target = (clean - noisy) / noise**2
    first, second = (score_batch(key, score, noisy) - target for key in jax.random.split(key))
    return Estimate.of(0.5 * jnp.sum((first * second).reshape(len(clean), -1), axis=1))


def _fisher(
    key: PRNGKeyArray, score: Score, train: Array, test: Array, sizes: Sizes, progress: Progress
) -> FisherDivergence:
    """Estimate the Fisher divergence, with a tenth of the training examples for validation; q is not trained."""
    for_critic, for_training = jax.random.split(key)
    held = max(LEAST, len(train) // 10)
    batch = min(100, len(train) - held)
    how = CriticTraining(
        steps=min(sizes.critic_steps, max(1, _EPOCHS * (len(train) - held) // batch)),
        batch=batch,
        learning_rate=1e-3,
        posterior_steps=0,
        scores="once",
        checks=min(10, sizes.critic_steps),
    )
    critic = MLPCritic(for_critic, train.shape[1:], width=sizes.critic_width)
    return fisher_divergence(
        for_training, score, train[held:], train[:held], test, critic=critic, how=how, progress=progress
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
