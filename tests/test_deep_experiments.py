"""Experiments with deep models: tiny runs end to end, and claims for made-up numbers."""

import json
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from small_recipes import parts_of, start_of
from vages import Batch
from vages.app.bench.deep import features_flops
from vages.app.experiments import (
    fig_interpolation,
    fig_samples,
    kept_runs,
    reproduce,
    sensitivity,
    table1,
    table_time_memory,
)
from vages.app.experiments.catalogue import EXPERIMENTS
from vages.app.recipes import Examples, as_recipe, job_on_noise
from vages.app.runs import Run
from vages.app.runs.image_quality import protocol_of
from vages.app.settings import DIGITS
from vages.data import Splits
from vages.data.images import Labels
from vages.evaluation.nearest import nearest_distances
from vages.training import Cost, Diverged, Fitted
from vages.training.learner import LearnerState

TINY = replace(
    DIGITS,
    width=8,
    depth=1,
    latents=3,
    head_width=8,
    steps=4,
    batch=10,
    posterior_steps=1,
    corrector_steps=1,
    sampling=0.004,
)


def quick(settings, **change):
    return replace(settings, recipes=(TINY,), **change)


@pytest.mark.parametrize("own", [None, 5e-3])
def test_the_posterior_may_have_a_learning_rate_of_its_own(own):
    """The first step of Adam moves each parameter by its learning rate."""
    recipe = replace(TINY, learning_rate=1e-3, posterior_learning_rate=own, decay="constant", warmup=0)
    learner, state = start_of(recipe, (1, 8, 8))
    after, _ = jax.jit(learner.step)(jax.random.key(1), state, Batch(jnp.full((10, 1, 8, 8), 0.3)))
    for part, rate in (("model", 1e-3), ("posterior", own or 1e-3)):
        pairs = zip(*(jax.tree.leaves(getattr(tree, part)) for tree in (state, after)), strict=True)
        moved = max(float(jnp.max(jnp.abs(y - x))) for x, y in pairs)
        assert moved == pytest.approx(rate, rel=1e-3)


def test_arithmetic_of_a_pass_is_that_of_its_matrix_products():
    job = job_on_noise(TINY, (1, 8, 8), rows=20)
    products = sum(2 * 10 * x.size for x in jax.tree.leaves(job.state.model.network) if x.ndim == 2)
    assert products <= features_flops(job) < 1.2 * products


def test_samples_and_interpolation_are_drawn_from_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(fig_samples, "QUICK", quick(fig_samples.QUICK, count=12))
    monkeypatch.setattr(fig_interpolation, "QUICK", quick(fig_interpolation.QUICK, rows=3, columns=2))
    heard = []
    drawn = reproduce("fig-samples", tmp_path, quick=True, say=heard.append)
    run = tmp_path / "runs" / "digits-0"
    assert [line for line in heard if "4 iterations in" in line]
    assert sorted(path.name for path in run.glob("samples-*")) == ["samples-1", "samples-2"]
    assert (tmp_path / "fig-samples" / "digits.png").exists()
    assert len(drawn.outcome.claims) == 10, "the images are noise, so a classifier's numbers mean nothing"
    assert {claim.claim.split(":")[0] for claim in drawn.outcome.claims} == {
        f"digits after 4 iterations, {way}" for way in fig_samples.WAYS.values()
    }
    found = drawn.outcome.measurements["digits, h sampled with v"]
    assert found["iterations"] == 4
    heard.clear()
    walked = reproduce("fig-interpolation", tmp_path, quick=True, say=heard.append)
    assert not [line for line in heard if "iterations in" in line], "the run was there"
    assert (run / "interpolation-1").exists()
    assert [claim.claim.split(":")[0] for claim in walked.outcome.claims] == ["digits after 4 iterations"] * 3
    assert (
        json.loads((tmp_path / "fig-interpolation" / "result.json").read_text())["measurements"]["digits"]["ratio"] == 1
    )


def test_a_run_that_is_there_is_taken_as_it_is_and_gone_on_with_to_its_end(tmp_path, monkeypatch):
    from vages.app.runs import run_recipe

    path = tmp_path / "digits-0"
    shorter = replace(TINY, steps=2)
    run_recipe(as_recipe(shorter), path)
    heard = []
    (run,) = kept_runs.kept_runs((TINY,), tmp_path, heard.append)
    assert (run.step, run.settings) == (2, shorter)
    assert heard == [f"digits: checkpoint 2 of {path}"]
    for change, got in (({"method": "mdsm"}, "digits mdsm 0"), ({"seed": 1}, "digits vages-mdsm 1")):
        path.rename(tmp_path / "own")
        run_recipe(as_recipe(replace(shorter, **change)), path)
        with refused("runs", got=f"one of {got}"):
            kept_runs.kept_runs((TINY,), tmp_path, heard.append)
        shutil.rmtree(path)
        (tmp_path / "own").rename(path)
    shutil.rmtree(path / "checkpoints")  # as if it had been killed before the first
    (run,) = kept_runs.kept_runs((TINY,), tmp_path, heard.append)
    assert run.step == 2
    path.rename(tmp_path / "digits-1")
    from vages.app.runs import config_of
    from vages.app.settings import CHECKERBOARD
    from vages.training import RunFolder

    RunFolder(path, config_of(as_recipe(CHECKERBOARD))).close()
    with pytest.raises(ValueError, match="^runs: .*got .*GRBM"):
        kept_runs.kept_runs((TINY,), tmp_path, heard.append)


def test_good_samples_are_told_from_bad_ones():
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=600)
    centers = rng.uniform(size=(10, 1, 4, 4))
    draw = lambda labels: (centers[labels] + 0.1 * rng.normal(size=(len(labels), 1, 4, 4))).astype(np.float32)
    images = draw(labels)
    splits = Splits(images[:400], images[400:400], images[400:])
    data = Examples(splits, Labels(labels[:400], labels[400:400], labels[400:]))
    compared = lambda samples: fig_samples.compare(samples, data, by_class=True) | {"diverged": 0.0}
    verdicts = lambda found: [claim.holds for claim in fig_samples.verdicts("toy", found)]
    hold = lambda samples: verdicts(compared(samples))
    few, spread, much, copies, far, recognisable, classes = range(7)
    good = draw(rng.integers(10, size=200))
    assert hold(good) == [True] * 7
    assert not verdicts(compared(good) | {"diverged": 0.06})[few]
    assert not hold(np.full_like(good, 0.5))[spread]
    assert not hold(images[:200])[copies]
    noise = rng.normal(size=good.shape)
    for level in (1.0, float(images.std())):  # the second with the data's spread
        found = hold((images.mean() + level * noise).astype(np.float32))
        assert not found[far]
        assert len(found) == 5, "a classifier is sure of noise too"
    assert not hold((images.mean() + noise).astype(np.float32))[much]
    sure = "a classifier's confidence over that in test images"
    blurred = compared(good.mean(0) + 0.03 * (good - good.mean(0)))
    assert blurred[sure] < 0.8
    assert not verdicts(compared(good) | {sure: blurred[sure]})[recognisable]
    assert not hold(draw(rng.integers(5, size=200)))[classes]
    data = replace(data, splits=Splits(images[:400], images[:0], images[:200]))  # all test images are training images
    assert hold(good) == [True] * 5  # no claims about distances


def test_nearest_and_classes_against_what_they_mean():
    rng = np.random.default_rng(1)
    these, those = rng.normal(size=(5, 2, 3)), rng.normal(size=(7, 2, 3))
    expected = [min(np.linalg.norm(a - b) for b in those) for a in these]
    np.testing.assert_allclose(nearest_distances(these, those), expected, rtol=1e-10)
    eye = np.eye(4).repeat(20, 0)
    sure, classes = fig_samples.confidence(eye[:40], eye, eye, np.arange(4).repeat(20))
    assert sure == pytest.approx(1, abs=1e-6)
    assert classes == pytest.approx(2)


def test_a_walk_is_measured_by_its_longest_step_and_its_span():
    line = np.arange(5.0)[:, None, None] * np.ones((1, 2, 2))
    assert fig_interpolation.walk(line) == (2.0, 8.0)
    line[3:] += 10
    assert fig_interpolation.walk(line) == (22.0, 28.0)
    assert fig_interpolation.typical_distance(np.zeros((3, 2, 2)), 0) == 0


def test_only_images_that_change_smoothly_support_a_smooth_change():
    walk = np.arange(11.0)[:, None, None] * np.ones((1, 4, 4))
    noise = np.random.default_rng(0).normal(size=walk.shape)
    hold = lambda images: [claim.holds for claim in fig_interpolation.verdicts("toy", images, typical=30.0)]
    assert hold(walk) == [True, True, True]
    assert hold(noise) == [False, True, True], "a jump each time"
    assert hold(100 * noise) == [False, True, False], "further apart than images are"
    assert hold(1000 * walk) == [True, True, False], "chains on their way to infinity"
    assert hold(0 * walk) == [False, False, True], "h changes nothing"
    assert hold(np.nan * walk) == [False, False, False]


@pytest.mark.parametrize(
    ("ours", "expected"), [(1.0, [True] * 5), (2.0, [False, True, False, True, True]), (3.0, [False] * 5)]
)
def test_time_and_memory(tmp_path, monkeypatch, ours, expected):
    cost = {"VaGES-MDSM": ours, "BiMDSM N = 0": 1.0, "BiMDSM N = 2": 2.0, "BiMDSM N = 5": 3.0, "EBM": 0.9}
    made = lambda jobs, **_: {name: Cost(np.full(3, cost[name]), int(1e9 * cost[name])) for name in jobs}
    monkeypatch.setattr(table_time_memory, "iteration_costs", made)
    monkeypatch.setattr(table_time_memory, "job_on_noise", lambda *_, **__: None)
    outcome = reproduce("table-time-memory", tmp_path, quick=True).outcome
    assert [claim.holds for claim in outcome.claims] == expected
    assert set(outcome.measurements["table"]["digits"]) == set(cost)


def test_sensitivity(tmp_path, monkeypatch):
    """Runs with made-up final losses: deeper is better, KL is worse, and K = 0 diverges."""

    def train(recipe, images, guard):
        settings = recipe.settings
        if settings.posterior_steps == 0:
            raise Diverged("loss exploded at iteration 7")
        loss = 100.0 - settings.depth + 20 * (settings.divergence == "kl") + 0.01 * settings.latents
        history = [{"step": n, "loss": loss + (n < 20), "divergence": 1.0} for n in range(1, 21)]
        state = LearnerState(*[None] * 7, step=jnp.zeros((), jnp.int32), rate=jnp.ones(()))
        return type("Trained", (), {"fitted": Fitted(state, 20, 1.0, False, history)})

    monkeypatch.setattr(sensitivity, "train", train)
    result = reproduce("sensitivity", tmp_path, quick=True)
    assert [claim.holds for claim in result.outcome.claims] == [True, True, True, False, True, True]
    table = result.outcome.measurements["table"]
    assert table["K = 0, C = 5"] == {"diverged": 1.0, "said": "loss exploded at iteration 7"}
    assert table["latents 8"]["loss"] == pytest.approx(97.08 + 0.5)
    assert "latents 16" not in table, "that is the recipe as it is"
    assert result.sound


def test_layers_that_change_nothing_do_not_improve(tmp_path, monkeypatch):
    history = [{"step": n, "loss": 1 / n, "divergence": 1.0} for n in range(1, 21)]
    state = LearnerState(*[None] * 7, step=jnp.zeros((), jnp.int32), rate=jnp.ones(()))
    trained = type("Trained", (), {"fitted": Fitted(state, 20, 1.0, False, history)})
    monkeypatch.setattr(sensitivity, "train", lambda recipe, images, guard: trained)
    found = reproduce("sensitivity", tmp_path, quick=True).outcome.claims
    assert [claim.holds for claim in found] == [True, True, True, True, False, True]
    history[:] = [{**row, "loss": 1 + 0.001 * (row["step"] % 2)} for row in history]
    found = reproduce("sensitivity", tmp_path, quick=True).outcome.claims
    assert not any(claim.holds for claim in found), "the loss of none has fallen"


def test_runs_that_diverge_support_no_claim(tmp_path, monkeypatch):
    def train(recipe, images, guard):
        raise Diverged("loss exploded at iteration 7")

    monkeypatch.setattr(sensitivity, "train", train)
    result = reproduce("sensitivity", tmp_path, quick=True)
    assert not any(claim.holds for claim in result.outcome.claims)
    assert not result.sound


def test_the_paper_s_variants_are_all_there():
    names = sensitivity.variants(sensitivity.PAPER, sensitivity.PAPER.recipe)
    assert len(names) == 1 + 2 + 2 + 2 + 2 + 1 + 9
    assert names["K = 10, C = 5"].posterior_steps == 10
    assert {name: names[name].corrector_size for name in ("latents 20", "depth 4", "latents 100")} == {
        "latents 20": 4e-3,
        "depth 4": 1e-2,
        "latents 100": 2e-2,
    }  # 2e-4 of the dimension of h, as in the paper
    assert names["corrector noise 0.001"].corrector_noise == 1e-3


def test_only_deep_experiments_are_told_where_runs_are_kept():
    trained = {name for name, entry in EXPERIMENTS.items() if entry.trains}
    assert trained == {"fig-samples", "fig-interpolation", "table1"}


def test_table_1_of_small_runs(tmp_path, monkeypatch):
    recipes = (TINY, replace(TINY, method="mdsm"))
    monkeypatch.setattr(table1, "QUICK", table1.Settings(recipes, count=40, features="pixels"))
    outcome = reproduce("table1", tmp_path, quick=True).outcome
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["digits-0", "digits-mdsm-0"]
    (claim,) = outcome.claims
    table = outcome.measurements["table"]
    ours, plain = (table[f"digits, {title}"] for title in table1.TITLES.values())
    assert claim.value == ours["fid"] / plain["fid"]
    assert (ours["n"], ours["iterations"], ours["training images"]) == (40, 4, 1437)


def test_the_distance_of_pixels_is_that_of_gaussians():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5000, 2)) * [1, 2], rng.normal(size=(5000, 2)) * [3, 4] + [1, 0]
    distance = table1.fid(table1.pixel_statistics(a), table1.pixel_statistics(b))
    assert distance == pytest.approx(1 + (3 - 1) ** 2 + (4 - 2) ** 2, rel=0.05)  # one standard error is 2 %


def test_verdicts_on_table_1():
    row = lambda fid, steps=300_000: {"metric": "FID-10k", "fid": fid, "iterations": steps, "training images": 50_000}
    ours, plain, faces = ("cifar10", "vages-mdsm"), ("cifar10", "mdsm"), ("celeba", "vages-mdsm")
    hold = lambda table: [claim.holds for claim in table1.verdicts(table, "inception")]
    assert hold({ours: row(30.8), plain: row(31.6), faces: row(31.5)}) == [True, True, True, True]
    assert hold({ours: row(30.9), plain: row(30.8), faces: row(31.6)}) == [False, True, False, False]
    assert hold({ours: row(30.0), plain: row(30.0)}) == [True, True, False], "latents that change nothing do not help"
    assert hold({ours: row(30.0), plain: row(40.0, steps=7)}) == [True, False], "runs of other lengths do not compare"
    survivors = lambda fid, diverged: {**row(fid), "diverged": diverged, "of": 10_000}
    assert hold({ours: survivors(30.0, 500), plain: row(31.6)}) == [True, True, True]
    assert hold({ours: survivors(30.0, 501), plain: row(31.6)}) == [False, True, False], "the rest is a selection"
    assert hold({ours: row(30.0), plain: survivors(31.6, 501)}) == [True, False, False]
    for name, value in (("metric", "FID-2k"), ("weights", "selected"), ("flips", True), ("learning rate", 5e-5)):
        other = {**row(40.0), name: value}
        assert hold({ours: row(30.0), plain: other}) == [True, False]
        assert table1.unlike({ours: row(30.0), plain: other})["cifar10"].startswith(f"{name} (")


def test_table_1_says_where_the_guard_stepped_in():
    row = {"metric": "FID-10k", "fid": 30.0, "iterations": 300_000, "training images": 50_000}
    recovery = {"problem": "…", "to": 50_000, "rate": 0.5}
    guarded = {**row, "recoveries": [recovery]}
    both = lambda row: {("cifar10", "vages-mdsm"): row, ("cifar10", "mdsm"): guarded}
    said = lambda row: table1.verdicts({("cifar10", "mdsm"): row}, "inception")[0].claim
    assert "after 300,000 iterations on" in said(row)
    lowered = "after 300,000 (with 0.5 of the rates from 50,000 on) iterations"
    assert f"{lowered} on" in said(guarded)
    compared = table1.verdicts(both(row), "inception")[-1].claim
    assert "VaGES-MDSM after 300,000 iterations over that of" in compared
    assert f"MDSM without latents {lowered})" in compared


def test_only_recoveries_that_lasted_are_reported():
    recovered = lambda to, rate: {"event": "recovered", "to": to, "rate": rate, "problem": "…"}
    resumed = lambda step: {"event": "resumed", "step": step}
    rates = lambda *events: [one["rate"] for one in kept_runs.lasting_recoveries([{"event": "started"}, *events])]
    assert rates(recovered(500, 0.5), resumed(900)) == [0.5]
    assert rates(recovered(500, 0.5), recovered(500, 0.25)) == [0.25], "diverged again before the next checkpoint"
    assert rates(recovered(500, 0.5), resumed(500)) == [], "killed before the next checkpoint: with all of the rates"
    assert rates(recovered(500, 0.5), recovered(700, 0.25), resumed(800)) == [0.5, 0.25]


def test_a_quality_that_was_computed_is_found_again(tmp_path):
    (tmp_path / "run").mkdir()
    model, posterior = parts_of(TINY, (1, 8, 8))(jax.random.key(0))
    run = Run(tmp_path / "run", as_recipe(TINY), model, posterior, 300, "averages")
    vars(run)["data"] = run.recipe.load()
    sampling = {"checkpoint": 300, "weights": "averages", "seed": 0, "of": 10_000}
    sampling |= {"protocol": protocol_of(run, "paper"), "sampler": "annealed Langevin dynamics, 11 steps"}
    quality = {"fid": 30.0, "sampling": sampling, "reference": {"name": "digits:train"}}
    how = {"count": 10_000, "protocol": "paper", "seed": 0}
    assert table1.find_quality(run, **how) is None
    for other in ({"checkpoint": 200}, {"sampler": "annealed Langevin dynamics, 9 steps"}):
        table1.keep_quality(run, {**quality, "sampling": {**sampling, **other}})
    table1.keep_quality(run, {**quality, "reference": {"name": "digits:test"}})
    (tmp_path / "run" / "quality-4").mkdir()
    assert table1.find_quality(run, **how) is None
    table1.keep_quality(run, quality)
    assert table1.find_quality(run, **how) == quality
    assert table1.find_quality(run, **{**how, "seed": 1}) is None
