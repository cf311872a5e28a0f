"""The guard detects non-finite and exploding values, stops or recovers, and reports it."""

import json
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fitting import fit_state, with_step
from small_recipes import parts_of
from vages.app.recipes import grbm
from vages.app.settings import CHECKERBOARD
from vages.training import Checkpoints, Diverged, Guard, RunFolder, init_seeds
from vages.training.guard import largest_parameter

SEEDS = (4, 5)
RECIPE = replace(CHECKERBOARD, posterior_steps=1, latents=2, batch=20)


@cache
def parts():
    learner = grbm.learner(RECIPE)
    return learner, init_seeds(learner, SEEDS, parts_of(RECIPE, 2), 20)


def count(key, state, batch):
    """A step that compiles quickly: it counts, and its loss is noise."""
    return state._replace(step=state.step + 1), {"loss": 1 + jax.random.uniform(key), "gradient_norm": jnp.ones(())}


def broken(spoil, step=count):
    """The learner with `spoil(state, metrics)` applied after each step."""

    def spoilt(key, state, batch):
        return spoil(*step(key, state, batch))

    return with_step(parts()[0], spoilt)


def nan_loss(at):
    return lambda after, metrics: (after, metrics | {"loss": jnp.where(after.step == at, jnp.nan, metrics["loss"])})


def run(learner, *, steps=40, folder=None, guard=Guard(), **how):  # noqa: B008
    data = jnp.asarray(np.random.default_rng(0).uniform(size=(100, 2)), jnp.float32)
    how = {"chunk": 5, "checkpoints": Checkpoints(every=10), **how}
    return fit_state(learner, parts()[1], data, steps=steps, batch=20, seed=SEEDS, folder=folder, guard=guard, **how)


def events(folder):
    return [json.loads(line) for line in (folder.path / "events.jsonl").read_text().splitlines()]


def test_the_message_says_what_when_the_last_good_checkpoint_and_what_to_try(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    with pytest.raises(Diverged) as caught:
        run(broken(nan_loss(28)), folder=folder)
    message = str(caught.value)
    assert "loss, got nan at iteration 28 of seed 4; " in message
    assert message.endswith(f" {tmp_path}/run/checkpoints/step-000000000020.")
    assert [event["event"] for event in events(folder)] == ["started", "diverged"]
    problem = events(folder)[-1]["problem"]  # shown on the page
    assert "try a smaller learning rate" in problem
    assert f"training diverged: {problem}. " in message


def test_the_divergence_of_the_posterior_is_not_called_that_of_training():
    def told(values, history=()):
        metrics = {"divergence": np.asarray([values])}
        return Guard().problem(0, metrics, np.ones(1), np.ones(1), list(history), (0,))

    assert told([1.0, np.nan]) == "expected a finite divergence of the posterior, got nan at iteration 2"
    grown = told([1e9, 1e9], [{"divergence": 1.0}] * 5)
    assert grown is not None
    assert grown.startswith("expected a divergence of the posterior near its usual 1, got 1e+09")


def test_recovering_goes_back_takes_other_noise_and_slows_down(tmp_path):
    """The learner breaks at iteration 28 until its learning rate is low enough."""

    def spoil(after, metrics):
        bad = (after.step == 28) & (after.rate > 0.3)
        return after, metrics | {"gradient_norm": jnp.where(bad, jnp.inf, metrics["gradient_norm"])}

    folder, learner = RunFolder(tmp_path / "run", {}), broken(spoil, parts()[0].step)
    fitted = run(learner, folder=folder, guard=Guard("recover"))
    assert fitted.step == 40
    assert fitted.state.rate.tolist() == [0.25, 0.25]
    told = [event for event in events(folder) if event["event"] == "recovered"]
    assert [(event["from"], event["to"], event["retry"], event["rate"]) for event in told] == [
        (25, 20, 1, 0.5),
        (25, 20, 2, 0.25),
    ]
    assert all("gradient_norm, got inf at iteration 28" in event["problem"] for event in told)
    assert [row["step"] for row in fitted.history] == list(range(5, 45, 5))

    folder.close()
    reopened = RunFolder.reopen(tmp_path / "run")
    again = run(learner, folder=reopened, guard=Guard("recover"), steps=50, resume=True)
    reopened.close()

    other = RunFolder(tmp_path / "other", {})
    straight = run(learner, folder=other, guard=Guard("recover"), steps=50)
    for x, y in zip(jax.tree.leaves(again.state), jax.tree.leaves(straight.state), strict=True):
        np.testing.assert_array_equal(x, y)

    calm = run(parts()[0], steps=40)
    early, late = (np.asarray(one.curve("loss")[1]) for one in (calm, fitted))
    np.testing.assert_array_equal(early[:4], late[:4])  # up to the checkpoint that was restored
    assert (early[4:] != late[4:]).all()  # and with other noise after it


def test_retries_are_bounded(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    with pytest.raises(Diverged, match="after 2 retries: .*got nan at iteration 3"):
        run(broken(nan_loss(3)), folder=folder, guard=Guard("recover", retries=2))
    assert [event["event"] for event in events(folder)] == ["started", "recovered", "recovered", "diverged"]


def test_a_parameter_that_is_not_finite_is_seen_though_every_metric_is_well():
    def spoil(after, metrics):
        weight = jnp.where(after.step == 10, jnp.nan, after.model.weight)
        model = eqx.tree_at(lambda model: model.weight, after.model, weight)
        return after._replace(model=model), {"loss": jnp.ones(())}

    with pytest.raises(Diverged, match="parameters .*got inf at iteration 10 of seed 4"):
        run(broken(spoil), steps=10)


@pytest.mark.parametrize(("factor", "stops"), [(1e5, True), (1e3, False)])
def test_a_metric_that_explodes_stops_the_run(factor, stops):
    def spoil(after, metrics):
        return after, {"loss": 2.0 + factor * 2 * (after.step > 32).astype(jnp.float32)}

    if stops:
        with pytest.raises(Diverged, match=r"\bloss\b.*got 2e\+05 up to iteration 35"):
            run(broken(spoil))
    else:
        run(broken(spoil))


def test_a_spike_is_no_explosion():
    def spoil(after, metrics):
        return after, {"loss": 2.0 + 1e6 * (after.step == 33).astype(jnp.float32)}

    assert run(broken(spoil)).step == 40


def test_exploding_parameters_stop_the_run():
    def spoil(after, metrics):
        grow = jnp.where(after.step > 20, 1e7, 0.0)
        model = eqx.tree_at(lambda model: model.weight, after.model, after.model.weight + grow)
        return after._replace(model=model), {"loss": jnp.ones(())}

    learner = broken(spoil)
    with pytest.raises(Diverged, match=r"\bparameters .*0\.\d+ .*got"):
        run(learner)
    assert run(learner, guard=Guard(explosion=1e30)).step == 40


def test_the_largest_parameter_is_found_seed_by_seed():
    _, state = parts()
    model = eqx.tree_at(lambda model: model.weight, state.model, state.model.weight.at[1, 0, 1].set(-7.0))
    sizes = largest_parameter(state._replace(model=model), many=True)
    assert sizes[1] == 7
    assert sizes[0] < 1


def test_every_number_of_a_state_is_looked_at():
    """A non-finite number in any leaf makes its own seed's size infinite. A large one counts only if it is trained."""
    state = parts()[1]._replace(extras={"c": jnp.ones((2, 3))}, carry=jnp.ones((2, 4)))
    leaves, structure = jax.tree.flatten(state)
    trained = len(jax.tree.leaves((state.model, state.posterior, state.extras)))
    looked_at = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact) and leaf.size]
    assert trained < len(looked_at)

    def sizes(i, value):
        changed = leaves[i].reshape(2, -1).at[1, -1].set(value).reshape(leaves[i].shape)
        return largest_parameter(structure.unflatten([*leaves[:i], changed, *leaves[i + 1 :]]), many=True)

    usual = largest_parameter(state, many=True)
    assert usual.max() < 7
    for i in looked_at:
        for value in (jnp.nan, -jnp.inf):
            np.testing.assert_array_equal(sizes(i, value), [usual[0], np.inf])
        np.testing.assert_array_equal(sizes(i, -7.0), [usual[0], 7.0 if i < trained else usual[1]])
    alone = jax.tree.map(lambda x: x[1], state)
    assert largest_parameter(alone, many=False) == usual[1:]


@pytest.mark.parametrize("change", [{"explosion": 0.5}, {"retries": -1}, {"lower": 0.0}, {"lower": 2.0}])
def test_a_guard_checks_itself(change):
    with pytest.raises(ValueError, match="^guard: expected"):
        Guard(**change)
