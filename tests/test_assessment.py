"""The posterior gap against closed forms and enumeration; the full assessment of a small run."""

import contextlib
import errno
import json
import math
import shutil
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vages
import vages.app.runs
from errors import refused
from small_nets import IMAGE, filled
from small_recipes import parts_of, start_of
from truth import enumerated, expected_vaes
from vages import (
    GRBM,
    BernoulliPosterior,
    Corrector,
    ExactPosterior,
    Gaussian,
    GaussianPosterior,
    Joint,
    LinearGaussian,
    Real,
    TractableEBLVM,
)
from vages.app.cli import evaluate
from vages.app.recipes import Examples, FIDSelection, as_recipe, train
from vages.app.recipes.units import Units
from vages.app.report.assessments import assessment_figure
from vages.app.runs import Run, assessment, assessment_rows, config_of, likelihoods, load_run
from vages.app.runs.assessment import Assessment, assess
from vages.app.runs.assessment_rows import LONG, Row, Sizes
from vages.app.runs.likelihoods import likelihood_rows
from vages.app.settings import CHECKERBOARD, DIGITS
from vages.data import Splits
from vages.domains import Product
from vages.evaluation import (
    Density,
    Estimate,
    FisherDivergence,
    LevelNormalizer,
    Likelihood,
    LogEstimate,
    LogPartition,
    SteinTest,
    VariationalScore,
    posterior_gap,
)
from vages.files import BadFile
from vages.posteriors import Heads, Posterior
from vages.samplers import Samples, SamplingWarning
from vages.training import Checkpoints, RunFolder
from vages.training.checkpoint import newest_checkpoint, write_checkpoint

KEY = jax.random.key(0)
SMALL = replace(DIGITS, width=8, depth=1, latents=3, head_width=4, corrector_steps=2, sigma_base=0.2)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def layer(weight, bias):
    made = eqx.nn.Linear(weight.shape[1], weight.shape[0], key=KEY)
    return eqx.tree_at(lambda made: (made.weight, made.bias), made, (weight, bias))


def test_gap_of_a_grbm_by_enumeration():
    """KL over all states; the squared bias of VaES is ‖W Δm‖², within 5.5 errors."""
    model = GRBM(normal(0, 3, 4), normal(1, 3), normal(2, 4), jnp.zeros(()))
    q = BernoulliPosterior(layer(model.weight.T + 0.3 * normal(3, 4, 3), model.latent_bias), temperature=0.0)
    v = normal(4, 300, 3)  # more than one block
    gap = posterior_gap(KEY, model, q, v, samples=8)  # few samples, so an uncorrected variance would show in the bias
    features = jax.vmap(model.features)(v)
    states, weights = enumerated(jax.vmap(lambda v: q(model, None, v).logits)(v))
    _, truth = enumerated(features.field)
    kl = np.sum(np.asarray(weights) * (np.log(weights) - np.log(truth)), axis=1)
    assert gap.kl is not None
    assert gap.kl == pytest.approx((kl.mean(), kl.std(ddof=1) / math.sqrt(300)), rel=1e-4)
    mean = np.einsum("bs,bsh->bh", weights, states)
    bias = ((expected_vaes(model, v, mean) - np.asarray(jax.vmap(model.score)(v))) ** 2).sum(1).mean()
    assert gap.vaes_bias is not None
    assert abs(gap.vaes_bias.mean - bias) < 5.5 * gap.vaes_bias.error
    assert gap.vaes_bias.error < 0.2
    assert (gap.fisher, gap.ksd, gap.corrected_ksd, gap.n) == (None, None, None, 300)
    assert "Theorems 1 and 2" in gap.meaning()
    with refused("corrector", got="Binary(4)", kind=TypeError):
        posterior_gap(KEY, model, q, v, corrector=Corrector(1, 0.1))


def test_gap_of_a_gaussian_model_in_closed_form():
    """Fisher, KL and bias by hand. After many steps of the corrector, q is the posterior and KSD is 0."""
    model = LinearGaussian(0.4 * normal(0, 3, 2), normal(1, 3), normal(2, 2), jnp.zeros(()))
    shift, log_std = np.array([0.5, -0.3]), -0.2
    wide = layer(jnp.zeros((2, 3)), jnp.full(2, log_std))
    q = GaussianPosterior(Heads(layer(model.weight.T, model.latent_bias + jnp.asarray(shift, jnp.float32)), wide))
    v = normal(3, 64, 3)
    gap = posterior_gap(KEY, model, q, v, samples=100, corrector=Corrector(steps=100, step_size=0.1))
    assert gap.fisher is not None
    assert gap.kl is not None
    assert gap.vaes_bias is not None
    assert gap.ksd is not None
    assert gap.corrected_ksd is not None
    std = math.exp(log_std)
    fisher = 0.5 * (shift @ shift + 2 * (std - 1 / std) ** 2)
    assert abs(gap.fisher.mean - fisher) < 5.5 * gap.fisher.error < 0.2 * fisher
    assert gap.kl.mean == pytest.approx(0.5 * (shift @ shift + 2 * (std**2 - 1 - 2 * log_std)), rel=1e-4)
    bias = np.sum((np.asarray(model.weight, np.float64) @ shift) ** 2)
    assert abs(gap.vaes_bias.mean - bias) < 5.5 * gap.vaes_bias.error < 0.5 * bias
    assert gap.ksd.mean > 20 * gap.ksd.error
    assert abs(gap.corrected_ksd.mean) < 5.5 * gap.corrected_ksd.error < 0.2 * gap.ksd.mean
    assert "Theorems 3 and 4" in gap.meaning()
    assert "of the samples' KSD" in gap.meaning()
    right = posterior_gap(KEY, model, ExactPosterior(), v, samples=100)
    assert right.ksd is not None
    assert right.fisher is not None
    assert abs(right.ksd.mean) < 5.5 * right.ksd.error
    assert right.fisher.mean < 1e-10
    with refused("samples", got=3):
        posterior_gap(KEY, model, q, v, samples=3)
    with refused("v", got="(64, 2)"):
        posterior_gap(KEY, model, q, v[:, :2])


class Named(TractableEBLVM):
    """A linear-Gaussian model with two latents, which have names."""

    model: LinearGaussian

    @property
    def v(self):
        return Real(3)

    @property
    def h(self):
        return Product({"a": Real(1), "b": Real(1)})

    def features(self, v):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.model.features(v)

    def log_joint(self, features, h):
        return self.model.log_joint(features, jnp.concatenate([h["a"], h["b"]]))

    def posterior(self, features):
        return named(self.model.posterior(features))

    def free_energy(self, v):
        return self.model.free_energy(v)

    def log_partition(self):
        return self.model.log_partition()


class NamedPosterior(Posterior):
    posterior: Posterior

    def __call__(self, model, features, v, context=None):
        return named(self.posterior(model.model, features, v))  # pyright: ignore[reportAttributeAccessIssue]


def named(q):
    return Joint({name: Gaussian(q.loc[i : i + 1], q.log_std[i : i + 1]) for i, name in enumerate("ab")})


def test_gap_of_latents_with_names():
    """Fisher and bias by hand; KSD as if the latents were one vector, with other samples. All within 5.5 errors."""
    model = LinearGaussian(0.4 * normal(0, 3, 2), normal(1, 3), normal(2, 2), jnp.zeros(()))
    shift, std = np.array([0.5, -0.3]), math.exp(-0.2)
    wide = layer(jnp.zeros((2, 3)), jnp.full(2, -0.2))
    q = GaussianPosterior(Heads(layer(model.weight.T, model.latent_bias + jnp.asarray(shift, jnp.float32)), wide))
    v = normal(3, 64, 3)
    gap, beside = posterior_gap(KEY, Named(model), NamedPosterior(q), v), posterior_gap(KEY, model, q, v)
    fisher = 0.5 * (shift @ shift + 2 * (std - 1 / std) ** 2)
    bias = np.sum((np.asarray(model.weight, np.float64) @ shift) ** 2)
    assert gap.fisher is not None
    assert gap.vaes_bias is not None
    assert gap.ksd is not None
    assert beside.ksd is not None
    assert abs(gap.fisher.mean - fisher) < 5.5 * gap.fisher.error < 0.5 * fisher
    assert abs(gap.vaes_bias.mean - bias) < 5.5 * gap.vaes_bias.error < 0.7 * bias
    assert abs(gap.ksd.mean - beside.ksd.mean) < 5.5 * math.hypot(gap.ksd.error, beside.ksd.error) < 0.5 * gap.ksd.mean


class Scaled(TractableEBLVM):
    """v ~ N(0, 1 / c²) and h ~ N(c v, 1), with c from the context."""

    @property
    def v(self):
        return Real(1)

    @property
    def h(self):
        return Real(1)

    def features(self, v, context):  # pyright: ignore[reportIncompatibleMethodOverride]
        return context["c"] * v

    def log_joint(self, features, h):
        return -0.5 * jnp.sum(features**2) - 0.5 * jnp.sum((h - features) ** 2)

    def posterior(self, features):
        return Gaussian(features, jnp.zeros(1))

    def free_energy(self, v, context):  # pyright: ignore[reportIncompatibleMethodOverride]
        return 0.5 * jnp.sum((context["c"] * v) ** 2)

    def log_partition(self):
        raise NotImplementedError


class Beside(Posterior):
    """The exact posterior of `Scaled`, shifted by 1."""

    def __call__(self, model, features, v, context=None):
        return Gaussian(features + 1, jnp.zeros(1))


def test_bias_of_a_tractable_model_with_a_context():
    """VaES is −c² v + c (h − c v), so that its bias is c times the shift of q. Within 5.5 errors."""
    context = {"c": jnp.linspace(0.5, 3, 300)}
    exact, shifted = (
        posterior_gap(KEY, Scaled(), q, normal(5, 300, 1), context=context).vaes_bias
        for q in (ExactPosterior(), Beside())
    )
    assert exact is not None
    assert shifted is not None
    assert abs(exact.mean) < 5.5 * exact.error < 0.1
    bias = float(jnp.mean(context["c"] ** 2))
    assert abs(shifted.mean - bias) < 5.5 * shifted.error < 0.5 * bias


BOUNDS = ["log-likelihood, log Z forward", "log-likelihood, log Z reverse", "gap of log Z, reverse less forward, nats"]
GAUSSIAN = ["log-likelihood of a Gaussian"]
MIXING = ["R̂", "effective sample size"]
SIZES = Sizes(examples=40, critic_steps=5, critic_width=4, samples=4, replicates=20, annealing=20)
COMMON = ["Fisher divergence", "KSD", "KSD p-value"]


def check(run, names):
    got = assess(run, sizes=SIZES)
    assert [row.name for row in got.rows] == names
    for row in got.rows:  # a critic of a few iterations may find nothing, and then the row says so
        assert row.means
        if row.value is None:
            assert (row.name, row.means[:15]) == ("Fisher divergence", "not informative")
        else:
            assert math.isfinite(row.value)
    record = json.loads(json.dumps(got.record(), allow_nan=False))
    assert [row["value"] for row in record["rows"]] == [row.value for row in got.rows]
    assert record["sizes"]["examples"] == 40
    assert len(assessment_figure(record["rows"]).axes) == 1
    return got


@pytest.fixture(scope="module")
def grbm(tmp_path_factory):
    path, recipe = tmp_path_factory.mktemp("runs") / "grbm", replace(CHECKERBOARD, steps=4, evaluate_every=4, seeds=2)
    folder = RunFolder(path, config_of(as_recipe(recipe)))
    trained = train(as_recipe(recipe), folder=folder)
    folder.close()
    return path, trained


def test_a_grbm_comes_back_and_is_assessed(grbm):
    path, trained = grbm
    run = load_run(path, seed=1)
    assert eqx.tree_equal(run.model, trained.of_seed(1)[0])
    np.testing.assert_array_equal(load_run(path).data.splits.test, trained.data.of_seed(0).splits.test)
    own = ["posterior gap, KL", "squared bias of VaES", *MIXING]
    names = ["log-likelihood", *GAUSSIAN, "score matching loss", *COMMON, *own]
    got = check(run, names)
    assert (got.noise, got.checkpoint) == (trained.settings.sigma, 4)
    assert assess(run, sizes=SIZES).rows == got.rows
    assert f"{got.examples} examples without noise" in got.rows[0].means
    assert "log Z is exact" in got.rows[0].means
    assert ", in nats, of" in got.rows[0].means
    other = assess(run.on("rings"), sizes=SIZES)
    assert (got.record()["data"]["own"], other.record()["data"]["own"]) == (True, False)
    assert ("data", "other", "evaluated on rings, not on the run's own data") in other.table()
    assert other.rows[0].value != got.rows[0].value
    with refused("noise", got=-1.0):
        assess(run, noise=-1.0)
    with refused("seed", got=-1):
        assess(run, seed=-1)
    with refused("seed", got=2):
        load_run(path, seed=2)


def test_until_a_model_was_judged_a_grbm_is_its_last_one(grbm, monkeypatch, tmp_path):
    """Before the first evaluation, the checkpoint's `best` is the initial model, which is not useful."""
    path, trained = grbm
    monkeypatch.setattr("vages.app.recipes.grbm.MAX_ENUMERATED", 0)
    assert eqx.tree_equal(load_run(path, seed=1).model, trained.of_seed(1)[0])
    later = shutil.copytree(path, tmp_path / "later")
    found = newest_checkpoint(later / "checkpoints", pytest.fail)
    assert found is not None
    parts = {
        k.removeprefix("state/"): v for k, v in found.arrays.items() if k.startswith(("state/model/", "state/post"))
    }
    best = {f"best/{name}": array + 1 for name, array in parts.items()}
    best["best_value"] = np.array([-100.0, -np.inf], np.float32)  # only the first seed was evaluated
    write_checkpoint(later / "checkpoints", 5, found.arrays | best, found.about)
    assert eqx.tree_equal(load_run(later, seed=1).model, trained.of_seed(1)[0])
    first = load_run(later, seed=0).model
    assert isinstance(first, GRBM)
    np.testing.assert_array_equal(first.weight, trained.of_seed(0)[0].weight + 1)
    best["best_value"] = np.array(-100.0, np.float32)  # one number instead of one per seed
    write_checkpoint(later / "checkpoints", 6, found.arrays | best, found.about)
    with pytest.raises(BadFile, match="best value"):
        load_run(later, seed=0)


def test_until_its_first_look_at_fid_a_deep_run_is_its_averages(monkeypatch, tmp_path):
    """A process killed during the first FID evaluation leaves a checkpoint whose `best` is the untrained model."""

    class Killed(BaseException):
        pass

    def look(*_):
        raise Killed

    monkeypatch.setattr(FIDSelection, "__call__", look)
    recipe = replace(SMALL, steps=4, batch=10, posterior_steps=1, corrector_steps=0, fid_every=4)
    folder = RunFolder(tmp_path / "run", config_of(as_recipe(recipe)))
    with pytest.raises(Killed):
        train(as_recipe(recipe), folder=folder, checkpoints=Checkpoints(2))
    folder.close()
    run, raw = load_run(folder.path), load_run(folder.path, raw=True)
    assert (run.step, run.weights, raw.weights) == (2, "averages", "raw")
    _, start = start_of(recipe, (1, 8, 8))
    for one in (run, raw):
        assert not eqx.tree_equal(one.model, start.model)
    assert not eqx.tree_equal(run.model, raw.model)


def untrained(recipe):
    """A run as if loaded, without training."""
    model, posterior = filled(parts_of(recipe, IMAGE))
    run = Run(Path("a run"), as_recipe(recipe), model, posterior, 7, "raw")
    images = np.random.default_rng(0).uniform(size=(90, *IMAGE)).astype(np.float32)
    run.__dict__["data"] = Examples(Splits(images[:50], images[:0], images[50:]))
    return run


def test_a_deep_run_is_assessed():
    gaps = ["posterior gap, Fisher", "KSD of h, samples of q", "KSD of h, corrected"]
    names = [*BOUNDS, *GAUSSIAN, "denoising score matching loss", *COMMON, *gaps, *MIXING]
    assert check(untrained(SMALL), names).noise == 0.2


def test_parts_side_by_side_give_the_rows_of_one_after_the_other(monkeypatch):
    run, stages, threads = untrained(SMALL), [], []
    monkeypatch.setattr(assessment, "fisher_divergence", noted(assessment.fisher_divergence, threads))
    side_by_side = assess(run, sizes=SIZES, stage=stages.append)
    monkeypatch.setattr(assessment, "in_threads", lambda *parts: tuple(part(lambda: None) for part in parts))
    in_order: list[str] = []
    assert assess(run, sizes=SIZES, stage=in_order.append).rows == side_by_side.rows
    assert in_order[:2] == ["chains of the model", "likelihood"]
    assert [[name for name in order if name in in_order[:2]] for order in (stages, in_order)] == [in_order[:2]] * 2
    assert [name for name in stages if name not in in_order[:2]] == in_order[2:]
    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.main_thread()


def noted(function, threads):
    """The same function, which records the thread of each call."""

    def call(*args, **kwargs):
        threads.append(threading.current_thread())
        return function(*args, **kwargs)

    return call


def test_a_critic_ends_where_the_likelihood_fails(monkeypatch):
    """The critic is stopped from the progress callback, although errors of callbacks are ignored."""
    began, told = threading.Event(), []

    def likelihood_rows(*_):
        assert began.wait(60)
        raise KeyboardInterrupt

    def fisher_divergence(*_, progress, **__):
        began.set()
        while len(told) < 6000:
            with contextlib.suppress(Exception):
                progress(len(told), 6000)
            told.append(threading.Event().wait(0.01))
        raise AssertionError("never told to end")

    monkeypatch.setattr(assessment, "model_chains", lambda *_: None)
    monkeypatch.setattr(assessment, "likelihood_rows", likelihood_rows)
    monkeypatch.setattr(assessment, "fisher_divergence", fisher_divergence)
    with pytest.raises(KeyboardInterrupt):
        assess(untrained(SMALL), sizes=SIZES)
    assert len(told) < 6000


@pytest.mark.parametrize("kind", [SamplingWarning, UserWarning])
def test_only_warnings_of_sampling_are_doubts(monkeypatch, kind):
    """Warnings of all threads are caught. A warning of another kind is not about the chains, and is passed on."""
    log_z = LogPartition(LogEstimate(1.0, 0.1, 0.7, 1.3), LogEstimate(1.1, 0.1, 0.8, 1.4), False)
    density = Density(jnp.zeros(5), jnp.zeros(5), jnp.full(5, 100.0), False)

    def log_likelihood(*_, **__):
        warnings.warn("some part is not well", kind, stacklevel=1)
        return Likelihood(-1.0, -1.1, 0.1, False, density, log_z)

    monkeypatch.setattr(likelihoods, "log_partition", lambda *_, **__: log_z)
    monkeypatch.setattr(likelihoods, "log_likelihood", log_likelihood)
    model = GRBM.init(KEY, 2, 2)
    with warnings.catch_warnings(record=True) as passed_on:
        warnings.simplefilter("always")
        rows = likelihood_rows(KEY, model, ExactPosterior(), normal(0, 5, 2), SIZES)
    doubted = [row.means.endswith("; the chains for log Z have not mixed") for row in rows[:2]]
    assert doubted == [kind is SamplingWarning] * 2
    assert [each.category for each in passed_on] == [UserWarning] * (kind is UserWarning)


def test_a_run_without_latents_is_assessed(monkeypatch):
    """The rows for likelihood and mixing do not use latents, and are tested with the run above."""
    monkeypatch.setattr(assessment, "likelihood_rows", lambda *_: [])
    monkeypatch.setattr(assessment, "model_chains", lambda *_: None)
    check(untrained(replace(SMALL, method="mdsm")), ["denoising score matching loss", *COMMON])


def test_chains_of_the_model_and_the_choice_of_examples_share_no_keys(monkeypatch):
    """The keys that an evaluation draws with are none that the sampler splits its own into."""
    of_chains, others = [], []
    monkeypatch.setattr(assessment, "model_chains", lambda key, *_: of_chains.append(key))
    monkeypatch.setattr(assessment, "held_out", lambda key, splits, count: others.append(key) or normal(0, 5, 2))
    monkeypatch.setattr(assessment, "_density_rows", lambda key, *_: others.append(key) or [])
    monkeypatch.setattr(assessment, "_score_rows", lambda keys, *_: others.extend(keys) or [])
    rows = np.zeros((40, 2), np.float32)
    subject = assessment.Subject(GRBM.init(KEY, 2, 2), ExactPosterior(), Splits(rows, rows, rows), 0.0, None)
    assessment.assess_subject(KEY, subject, SIZES, None)
    split = {tuple(np.asarray(jax.random.key_data(key))) for key in jax.random.split(of_chains[0], 50)}
    assert not split & {tuple(np.asarray(jax.random.key_data(key))) for key in others}


def test_runs_are_told_apart(grbm, tmp_path):
    found = newest_checkpoint(grbm[0] / "checkpoints", pytest.fail)
    assert found is not None
    folder = RunFolder(tmp_path / "deep", config_of(as_recipe(SMALL)))
    with pytest.raises(ValueError, match="^run: .*deep.checkpoints"):
        load_run(folder.path)
    write_checkpoint(folder.checkpoints, 4, found.arrays, {"data": found.about["data"]})
    folder.close()
    with pytest.raises(ValueError, match="deep.checkpoints.step-.*: expected .*a deep model, got .*something else"):
        load_run(folder.path)
    folder = RunFolder(tmp_path / "grbm", config_of(as_recipe(CHECKERBOARD)))
    with pytest.raises(ValueError, match="^run: .*grbm.checkpoints"):
        load_run(folder.path)
    write_checkpoint(folder.checkpoints, 4, found.arrays, {"data": {"shape": [10, 1, 8, 8]}})
    folder.close()
    with pytest.raises(ValueError, match="grbm.checkpoints.step-.*: expected .*a GRBM, got .*something else"):
        load_run(folder.path)


def test_denoising_loss_of_vaes_has_no_bias_from_its_noise():
    """With samples of the posterior it equals that of the exact score, within 5.5 errors of their difference."""
    model = LinearGaussian(0.8 * normal(0, 3, 2) / 2, normal(1, 3), normal(2, 2), jnp.zeros(()))
    clean = normal(3, 4000, 3)
    noisy = clean + 0.5 * normal(4, 4000, 3)
    loss = lambda score: assessment._denoising_loss(KEY, score, clean, noisy, 0.5)
    exact, estimated = loss(model.score), loss(VariationalScore(model, ExactPosterior()))
    scores = np.asarray(jax.vmap(model.score)(noisy)) - np.asarray(clean - noisy) / 0.25
    assert exact.mean == pytest.approx(0.5 * (scores**2).sum(1).mean(), rel=1e-5)
    assert abs(estimated.mean - exact.mean) < 5.5 * estimated.error < 0.1 * exact.mean


def test_sizes_are_checked():
    with refused("examples", got=5):
        Sizes(examples=5)


def test_command(grbm, monkeypatch, capsys):
    """The results are made up; the test checks that they are printed and stored."""

    def assess(run, *, sizes, noise, seed, progress, stage):
        stage("a part")
        progress(1, 2)
        rows = [
            Row("log-likelihood", -0.5, 0.25, "higher is better"),
            Row("KSD", math.nan, None, "0 if the model is correct"),
        ]
        return Assessment(str(run.path), run.step, rows, sizes.examples, noise, sizes, seed, 0.1)

    monkeypatch.setattr(vages.app.runs, "assess", assess)
    path, _ = grbm
    assert evaluate(str(path), examples=30, noise=0.5, seed=3, json=True) == 0
    out, shown = capsys.readouterr()
    assert shown.endswith(" s  a part\n")
    told = json.loads(out)
    assert (told["model"]["examples"], told["model"]["noise"], told["model"]["seed"]) == (30, 0.5, 3)
    assert told["images"] == {"not measured": "the network cannot evaluate samples of a GRBM"}
    folder = told["model"].pop("folder")
    assert folder == str(path / "evaluation-1")
    assert json.loads((path / "evaluation-1" / "result.json").read_text()) == told["model"]
    assert (path / "evaluation-1" / "evaluation.png").stat().st_size > 5000
    assert evaluate(str(path), measure="model", noise=0.5) == 0
    out = capsys.readouterr().out
    assert "-0.5 ± 0.25" in out
    assert f"vages report {path}" in " ".join(out.split())

    def full(run, assessment):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(vages.app.runs, "keep_assessment", full)  # the results are printed all the same
    for as_json, told in ((False, "-0.5 ± 0.25"), (True, '"value": -0.5')):
        with pytest.raises(OSError, match="No space left"):
            evaluate(str(path), measure="model", noise=0.5, json=as_json)
        assert told in capsys.readouterr().out
    assert "not finite" in out
    assert "FID" not in out
    assert (path / "evaluation-2").is_dir()
    with pytest.raises(ValueError, match=r"^run: .*\bdeep model"):
        evaluate(str(path), measure="images")


def test_other_data_by_the_command(grbm, tmp_path, monkeypatch, capsys):
    path = shutil.copytree(grbm[0], tmp_path / "run", ignore=shutil.ignore_patterns("evaluation-*"))
    monkeypatch.chdir(tmp_path)
    np.save("far.npy", np.full((40, 2), 30.0))
    common = {"measure": "ood", "examples": 40}
    assert evaluate(str(path), ood=("rings", "far.npy"), **common, json=True) == 0
    told = json.loads(capsys.readouterr().out)["model"]
    rows = {row["name"]: row for row in told["rows"]}
    assert rows["AUROC of log p̃, far.npy"]["value"] == 1
    assert told.pop("folder") == str(path / "evaluation-1")
    assert json.loads((path / "evaluation-1" / "result.json").read_text()) == told
    with refused("ood", got="none"):
        evaluate(str(path), measure="ood")
    with refused("ood", got="far.npy"):
        evaluate(str(path), measure="images", ood=("far.npy",))
    with refused("examples", got=3):
        evaluate(str(path), measure="ood", ood=("noise",), examples=3)
    assert not (path / "evaluation-2").exists()


def test_a_likelihood_that_is_not_estimated_says_why():
    model = vages.GRBM.init(jax.random.key(0), LONG + 1, 2)
    v = jnp.zeros((3, LONG + 1))
    (row,) = likelihood_rows(jax.random.key(1), model, vages.ExactPosterior(), v, Sizes())
    assert (row.name, row.value) == ("log-likelihood", None)
    assert "not estimated" in row.means


def test_estimates_of_log_z_that_disagree_are_pointed_out():
    def told(forward, reverse, error):
        low, high = (LogEstimate(value, error, value, value) for value in (forward, reverse))
        return likelihoods._gap_row(LogPartition(low, high, False))

    row = told(1.0, 1.3, 0.3)
    assert (row.value, row.standard_error) == pytest.approx((0.3, 0.3 * math.sqrt(2)))
    assert row.means.startswith("within its error")
    assert told(1.0, 3.0, 0.1).means.startswith("above its error")
    assert told(1.0, 1.1, 0.01).means.startswith("above its error")
    assert "temperatures" in told(1.0, 3.0, 0.1).means
    assert told(3.0, 1.0, 0.1).means.startswith("below 0")
    assert told(3.0, 1.0, 0.7).means.startswith("within its error")
    assert told(1.0, 6.0, 0.7).means.startswith("above its error")
    for gap in (told(1.0, 6.0, 0.71), told(1.0, 51.0, 20.0), told(1.0, 6.0, math.inf), told(1.0, math.nan, math.nan)):
        assert gap.means.startswith("too imprecise to tell")


def test_a_normalized_likelihood_is_doubted_where_log_z_is_not_0():
    off = lambda value, error=0.0, ess=math.inf: likelihoods._off(LevelNormalizer(0.1, value, error, ess))
    assert off(4.0) == "too high by 4 nats, log Z of this level"
    assert off(-0.1) == "too low by 0.1 nats, log Z of this level"
    assert off(0.03) == "too high by 0.03 nats, log Z of this level"
    assert off(0.02) is None
    assert off(0.1, error=0.05) is None
    assert off(4.0, ess=3.0) is None  # too few draws to judge
    row = likelihoods._level_row(LevelNormalizer(0.1, -1000.0, 0.0, math.inf, 0.004))
    assert "only 0.4 % of q's samples count" in row.means
    assert row.standard_error is None
    few = [LevelNormalizer(0.1, 1.0, math.inf, math.inf), LevelNormalizer(0.1, 1.0, 0.1, 3.0)]
    told = [likelihoods._level_row(level) for level in few]
    assert [row.value for row in told] == [None, None]
    assert ["too few examples" in told[0].means, "too few draws" in told[1].means] == [True, True]


def test_bits_of_standardized_images_are_those_of_their_gray_levels(monkeypatch):
    """Pixels that were divided by 2 have gray levels of half the width, and the same density needs one bit more."""
    few = SimpleNamespace(value=np.arange(5.0))
    monkeypatch.setattr(likelihoods, "flow_likelihood", lambda *_, **__: few)
    monkeypatch.setattr(likelihoods, "level_normalizers", lambda *_: [LevelNormalizer(0.1, 0.0, 0.0, math.inf)])
    model = vages.NoiseConditionalEBLVM.patches(
        jax.random.key(0), (1, 2, 2), sigma_data=1.0, h=vages.Empty(), patch=1, width=4, depth=1, features=2,
        embedding=4, normalized=True,
    )  # fmt: skip
    v = jax.random.normal(jax.random.key(1), (5, 1, 2, 2))
    rows = lambda units: likelihoods._normalized_rows(jax.random.key(2), model, vages.ExactPosterior(), v, str, units)
    plain, other = (
        {row.name: row.value for row in rows(units)} for units in (None, Units(np.zeros(()), np.full((1, 2, 2), 2.0)))
    )
    assert other["bits per dimension"] == pytest.approx((plain["bits per dimension"] or 0.0) + 1, rel=1e-5)


def test_too_few_examples_are_refused_before_anything_is_computed(grbm):
    path, _ = grbm
    run = load_run(path)
    for few, test in ((19, 10), (20, 9), (19, 0)):
        run.__dict__["data"] = Examples(Splits(*(np.zeros((n, 2), np.float32) for n in (few, 5, test))))
        with refused("data", few):
            assess(run, stage=lambda name: pytest.fail(name))


def test_chains_that_do_not_mix_say_which_rows_start_from_them():
    rows = [Row(name, 1.0, None, "") for name in ("log-likelihood, log Z forward", "log-likelihood, log Z reverse")]

    def told(worst, rows):
        drawn = Samples(None, None, 1.0, {"v": jnp.asarray([1.0, worst])}, {"v": jnp.asarray([9.0])}, 0, 0)
        return assessment_rows.mixing_rows(drawn, 16, 250, rows)[0].means

    assert told(1.04, rows).endswith("at most 1.05 if they agree")
    assert "do not trust “log-likelihood, log Z reverse”, computed from them" in told(2.2, rows)
    assert "temperatures" in told(math.nan, rows)
    assert "no other row depends on them" in told(2.2, [Row("log-likelihood", 1.0, 0.1, "")])


def test_a_gaussian_stands_beside_the_likelihood(float64):
    """The closed form for data whose covariance is known. A model with a lower likelihood gets a remark."""
    generator = np.random.default_rng(0)
    spread = np.array([[1.0, 0.0], [0.9, 0.3]])
    train, v = (jnp.asarray(generator.normal(size=(n, 2)) @ spread.T + 3) for n in (400_000, 20_000))
    model = vages.GRBM.init(jax.random.key(0), 2, 2)
    beside = lambda value, rows=train, noise=0.5: likelihoods.gaussian_rows(
        model, rows, v, noise, [Row("log-likelihood", value, 0.1, "")]
    )
    covariance = spread @ spread.T + 0.25 * np.eye(2)
    closed = -np.trace(np.linalg.solve(covariance, spread @ spread.T)) / 2 - np.log(2 * np.pi)
    closed -= np.linalg.slogdet(covariance)[1] / 2
    (row,) = beside(closed + 0.1)
    assert row.value is not None
    assert abs(row.value - closed) < 5.5 * (row.standard_error or 0.0) < 0.05
    assert all("better than the model" not in beside(closed - below)[0].means for below in (-0.1, 0.0, 0.29))
    assert "better than the model by 0.31 ± 0.1 nats" in beside(row.value - 0.31)[0].means
    assert beside(math.nan) == beside(None) == []
    assert beside(0.0, jnp.ones((9, 2)), 0.0) == []  # constant data
    assert beside(0.0, jnp.stack([train[:, 0], 1e-6 * train[:, 1]], axis=1), 0.0) == []  # almost on a line


def test_a_critic_that_found_nothing_says_so_and_what_disagrees_is_pointed_out():
    nothing = FisherDivergence(Estimate(-1.0, 1.0), Estimate(0.0, 0.0), 0, [], None, None)
    far = nothing._replace(best=Estimate(2.0, 0.1), best_step=5)
    row = assessment_rows.fisher_row(nothing, 50, all_of_them=False)
    assert (row.value, row.standard_error) == (None, None)
    assert row.means.startswith("not informative")
    assert "50 examples" in row.means
    assert "--examples" in row.means
    used = assessment_rows.fisher_row(nothing, 50, all_of_them=True).means
    assert "all 50 training examples" in used
    assert "--examples" not in used
    assert assessment_rows.fisher_row(far, 50, all_of_them=True).value == 2.0
    test = SteinTest("ksd", 1.0, 0.1, 0.01, 50, "rbf", 1.0)
    rejects, accepts = test, test._replace(p_value=0.5)
    told = lambda test, found: assessment_rows.ksd_rows(test, found)[1].means
    assert "trust the test" in told(rejects, nothing)
    assert "the Fisher divergence disagrees" in told(accepts, far)
    for test, found in ((rejects, far), (accepts, nothing)):
        assert told(test, found).endswith("at 5 %")


def test_the_picture_of_an_assessment_has_no_text_over_another():
    names = ["log-likelihood", "gap of log Z, reverse less forward, nats", "AUROC of typicality, a_folder_of_images"]
    rows = [{"name": name, "value": -0.0077052, "standard_error": 0.0049, "means": name} for name in names]
    figure = assessment_figure([*rows, *rows])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 18
    assert not [(i, j) for i, one in enumerate(boxes) for j in range(i) if one.overlaps(boxes[j])]
