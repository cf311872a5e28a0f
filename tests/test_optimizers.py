"""Options of a learner besides its objective: schedules, gradient clipping, averages, narrow dtypes."""

import inspect
import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from errors import refused
from small_nets import filled, normal
from vages import Batch, NoiseConditionalEBLVM, Real, normalize_weights, normalized_adam
from vages.models import LinearGaussian
from vages.objectives import DSM, BiDSM, Variational
from vages.optimizers import adam, apply, learning_rate, same_until
from vages.posteriors import GaussianPosterior
from vages.training.learner import Learner
from vages.training.selection import weights_of

KEY, ZERO = jax.random.key(0), jnp.zeros((), jnp.int32)


def rates(schedule, steps):
    with jax.numpy_dtype_promotion("standard"):
        return np.asarray(jax.vmap(schedule)(jnp.arange(steps)))


def test_a_rate_warms_up_and_decays_as_a_cosine():
    steps, peak, final = 50, 2.0, 0.5
    expected = [
        peak * t / 10 if t < 10 else final + (peak - final) * 0.5 * (1 + np.cos(np.pi * (t - 10) / 40))
        for t in range(steps)
    ]
    got = rates(learning_rate(peak, decay="cosine", steps=steps, warmup=10, final=final), steps + 3)
    np.testing.assert_allclose(got[:steps], expected, rtol=1e-6)
    np.testing.assert_allclose(got[steps:], final)


@pytest.mark.parametrize(
    ("steps", "warmup", "falling"), [(50, 10, 10), (50, 0, 10), (8, 0, 2), (7, 0, 2), (7, 5, 2), (2, 0, 2), (20, 19, 1)]
)
def test_a_trapezoid_rises_stays_and_falls(steps, warmup, falling):
    peak, final = 2.0, 0.5
    corners = ([0, warmup], [0.0, peak]) if warmup else ([0], [peak])
    x, y = [*corners[0], steps - falling, steps], [*corners[1], peak, final]
    expected = np.interp(np.arange(steps + 3), x, y)
    got = rates(learning_rate(peak, decay="trapezoid", steps=steps, warmup=warmup, final=final), steps + 3)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_constant_rate_is_a_number_and_may_warm_up():
    assert learning_rate(0.3) == learning_rate(0.3, final=1.0) == 0.3
    np.testing.assert_allclose(rates(learning_rate(0.3, warmup=3), 5), [0, 0.1, 0.2, 0.3, 0.3], rtol=1e-6)


@pytest.mark.parametrize(("decay", "warmup"), [("constant", 5), ("trapezoid", 0), ("trapezoid", 5), ("cosine", 0)])
def test_the_first_iterations_have_the_same_rate_however_many_are_planned(decay, warmup):
    few, many = (rates(learning_rate(1.0, decay=decay, steps=steps, warmup=warmup), 41) for steps in (40, 90))
    first = same_until(decay, 40, warmup)
    assert (few == many)[: int(min(first, 41))].all()
    assert first == math.inf or few[int(first) + 1] != many[int(first) + 1]
    assert first == {"constant": np.inf, "trapezoid": 32, "cosine": 0}[decay]


COSINE = {"decay": "cosine", "steps": 10}


@pytest.mark.parametrize(
    ("name", "got", "arguments"),
    [
        *(("learning_rate", repr(peak), {"peak": peak}) for peak in (0.0, math.inf, math.nan, "1")),
        *(("warmup", warmup, {"warmup": warmup}) for warmup in (-1, 2.5, 2**33)),
        *(("final", final, {"final": final}) for final in (-1.0, math.inf)),
        *(("final", final, COSINE | {"final": final}) for final in (math.inf, math.nan, -0.1, 1.1)),
        ("decay", "'square'", {"decay": "square"}),
        *(("steps", steps, COSINE | {"steps": steps}) for steps in (None, math.nan, math.inf, 7.5, "10", 0, 2**33)),
        ("steps", None, {"decay": "trapezoid"}),
        ("steps", 10, COSINE | {"warmup": 10}),
    ],
)
def test_rates_that_make_no_sense_are_refused(name, got, arguments):
    with refused(name, got):
        inspect.unwrap(learning_rate)(**{"peak": 1.0} | arguments)  # without type checks, as for users


def schedule_of(count):
    return 1.0 + jnp.asarray(count, jnp.float32)


@pytest.mark.parametrize(
    "optimizer",
    [
        adam(schedule_of),
        optax.adamw(schedule_of, weight_decay=0.0),
        optax.chain(optax.clip(10.0), optax.sgd(schedule_of)),
        optax.inject_hyperparams(optax.sgd)(learning_rate=schedule_of),
    ],
    ids=["adam", "adamw", "chain", "inject"],
)
def test_schedules_count_iterations_however_many_steps_they_take(optimizer):
    value, state = jnp.zeros(()), optimizer.init(jnp.zeros(()))
    moved = []
    for iteration in (0, 0, 0, 1, 1, 7):
        after, state = apply(optimizer, jnp.ones(()), state, value, jnp.asarray(iteration), jnp.ones(()))
        moved.append(float(value - after))
        value = after
    np.testing.assert_allclose(moved, [1, 1, 1, 2, 2, 8], rtol=1e-4)


def test_adams_own_counter_counts_steps():
    """Otherwise its bias correction would be wrong: two unequal gradients in one iteration, by hand."""
    optimizer = adam(0.1)
    value, state = jnp.zeros(()), optimizer.init(jnp.zeros(()))
    for gradient in (1.0, 3.0):
        value, state = apply(optimizer, jnp.asarray(gradient), state, value, jnp.asarray(5), jnp.ones(()))
    mean, square = (0.9 * 0.1 * 1 + 0.1 * 3) / (1 - 0.9**2), (0.95 * 0.05 * 1 + 0.05 * 9) / (1 - 0.95**2)
    np.testing.assert_allclose(value, -0.1 * (1 + mean / np.sqrt(square)), rtol=1e-5)


@pytest.mark.parametrize("posterior_steps", [1, 3])
def test_both_rates_are_those_of_the_iteration(posterior_steps):
    """Sign descent moves every parameter by the learning rate, so the last of n iterations shows it."""
    schedule = learning_rate(1.0, decay="cosine", steps=10, final=0.1)
    states, _ = trained(4, posterior_steps, learning_rate=None, optimizer=optax.sign_sgd(schedule))
    rate = float(rates(schedule, 4)[3])
    before, after = states[-2:]
    moves = jax.tree.map(lambda x, y: np.abs(y - x), (before.model, before.posterior), (after.model, after.posterior))
    np.testing.assert_allclose(jax.tree.leaves(moves[0])[0], rate, rtol=1e-4)
    largest = max(float(np.max(move)) for move in jax.tree.leaves(moves[1]))
    np.testing.assert_allclose(largest, posterior_steps * rate, rtol=1e-4)


def test_the_posterior_may_have_an_optimizer_of_its_own():
    states, _ = trained(1, 1, learning_rate=None, optimizer=optax.sign_sgd(0.1), posterior_optimizer=optax.sgd(0.0))
    before, after = states
    np.testing.assert_allclose(np.abs(after.model.weight - before.model.weight), 0.1, rtol=1e-4)
    for x, y in zip(jax.tree.leaves(before.posterior), jax.tree.leaves(after.posterior), strict=True):
        np.testing.assert_array_equal(x, y)


def test_an_optimizer_is_given_the_parameters():
    """Weight decay alone: w becomes (1 − rate · decay) w."""
    optimizer = optax.chain(optax.scale(0.0), optax.add_decayed_weights(0.5), optax.scale(-0.1))
    states, _ = trained(1, 1, learning_rate=None, optimizer=optimizer)
    for part in ("model", "posterior"):
        for x, y in zip(*(jax.tree.leaves(getattr(state, part)) for state in states), strict=True):
            np.testing.assert_allclose(y, 0.95 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("optimizer", {}),
        ("optimizer", {"optimizer": 1e-3}),
        ("optimizer", {"optimizer": optax.adam}),
        ("posterior_optimizer", {"learning_rate": 1e-3, "posterior_optimizer": "adam"}),
        ("learning_rate", {"optimizer": optax.sgd(0.1), "learning_rate": 1e-3}),
        ("posterior_steps", {"learning_rate": 1e-3, "posterior_steps": -1}),
    ],
)
def test_optimizers_that_are_none_are_refused(name, options):
    with refused(name, kind=(TypeError, ValueError)):
        Learner(DSM(0.3, Variational(2)), **options)


def test_an_unrolled_optimizer_needs_a_derivative():
    Learner(BiDSM(0.3, 2), adam(1e-3))
    Learner(BiDSM(0.3, 2), optax.adam(1e-3), optax.sgd(1e-3))
    with refused("posterior_optimizer"):
        Learner(BiDSM(0.3, 2), optax.adam(1e-3))


def test_the_factor_shortens_a_step_and_one_changes_no_bit():
    optimizer = adam(0.1)
    start = jnp.asarray([1.0, -2.0])
    state = optimizer.init(start)
    step = lambda factor: apply(optimizer, jnp.asarray([3.0, 0.1]), state, start, ZERO, jnp.asarray(factor))[0] - start
    np.testing.assert_allclose(step(0.25), 0.25 * step(1.0), rtol=1e-5)


def test_long_gradients_are_clipped_before_the_moments():
    gradients = [jnp.asarray([30.0, 40.0]), jnp.asarray([0.3, 0.4])]
    clipped, plain = adam(0.1, clip=1.0), adam(0.1)
    value = {}
    for name, optimizer, scale in (("clipped", clipped, 1.0), ("plain", plain, 1 / 50)):
        x, state = jnp.zeros(2), optimizer.init(jnp.zeros(2))
        for gradient, factor in zip(gradients, (scale, 1.0), strict=True):
            x, state = apply(optimizer, factor * gradient, state, x, ZERO, jnp.ones(()))
        value[name] = x
    np.testing.assert_allclose(value["clipped"], value["plain"], rtol=1e-5)


def test_a_clip_that_makes_no_sense_is_refused():
    with refused("clip", got=0.0):
        adam(0.1, clip=0.0)


@pytest.mark.parametrize(("name", "value"), [("ema", 1.0), ("ema", -0.1)])
def test_options_that_make_no_sense_are_refused(name, value):
    with refused(name, got=value):
        Learner(DSM(0.3, Variational(2)), learning_rate=0.1, **{name: value})


def trained(steps=4, posterior_steps=2, **options):
    """The states and metrics of a few iterations of a linear-Gaussian model."""
    keys = jax.random.split(jax.random.key(0), 4)
    model, posterior = LinearGaussian.init(keys[0], 3, 2), GaussianPosterior.linear(keys[1], 3, 2)
    options = {"learning_rate": 0.05, "posterior_steps": posterior_steps, **options}
    learner = Learner(DSM(0.5, Variational(2)), **options)
    state = learner.init(keys[2], model, posterior, batch=8)
    step, states, metrics = eqx.filter_jit(learner.step), [state], []
    for i in range(steps):
        state, numbers = step(
            jax.random.key(i), state, Batch(jax.random.normal(jax.random.fold_in(keys[3], i), (8, 3)))
        )
        states.append(state)
        metrics.append(numbers)
    return states, metrics


history = cache(trained)


def test_averages_are_of_model_and_posterior_and_forget_the_start_quickly():
    states, _ = history(ema=0.2)
    for part in ("model", "posterior"):
        average = jax.tree.leaves(getattr(states[0], part))
        for t, state in enumerate(states[1:]):
            decay = min(0.2, (1 + t) / (10 + t))
            average = [
                decay * a + (1 - decay) * b for a, b in zip(average, jax.tree.leaves(getattr(state, part)), strict=True)
            ]
            for a, b in zip(average, jax.tree.leaves(getattr(state.averages, part)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_several_averages_in_one_run():
    """Each equals the average of a run with only its decay. The first one is used for evaluations."""
    (both, _), (first, _), (second, _) = history(ema=(0.2, 0.9)), history(ema=0.2), history(ema=0.9)
    learner = Learner(DSM(0.5, Variational(2)), learning_rate=0.05, ema=(0.2, 0.9))
    kept = learner.averages(both[-1])
    assert list(kept) == [0.2, 0.9]
    assert weights_of(both[-1]) is both[-1].averages
    for decay, alone in ((0.2, first), (0.9, second)):
        for a, b in zip(jax.tree.leaves(kept[decay]), jax.tree.leaves(alone[-1].averages), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(jax.tree.leaves(first[-1].more_averages)) == 0  # the state for a single decay is unchanged
    for wrong in ((), (0.9, 0.9), (0.9, 1.0)):
        with refused("ema"):
            Learner(DSM(0.5, Variational(2)), learning_rate=0.05, ema=wrong)


NORMALIZED = {".linear": 0, ".scale": 0, ".readout": 0, ".weight": 3}  # suffix of the name, axis of the outputs


def unet_model():
    model = lambda key: NoiseConditionalEBLVM.images(
        key, (1, 4, 4), sigma_data=0.5, h=Real(2), widths=(4, 6), blocks=1, features=3, head_width=4, embedding=6
    )
    return jax.tree.map(lambda x: 1.5 * x, filled(model))


def test_normalized_weights_keep_their_norm_and_the_function():
    normalize, u = eqx.filter_jit(normalize_weights), normal(0, 1, 4, 4)
    model = normalize(unet_model())
    model = eqx.tree_at(lambda m: m.network.gain, model, jnp.ones(()))
    long = eqx.tree_at(lambda m: m.network.stem.weight, model, replace_fn=lambda w: 3 * w)
    again = normalize(long)
    network = eqx.filter_jit(lambda network: network(u, jnp.asarray(0.1)))
    expected = network(model.network)
    for other in (long, again):
        for a, b in zip(expected, network(other.network), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    norms = np.linalg.norm(np.asarray(again.network.stem.weight).reshape(-1, 4), axis=0)
    np.testing.assert_allclose(norms, math.sqrt(9 * 2), rtol=1e-4)


def test_a_step_on_normalized_weights():
    """Against the formulas, by parameter name. The first step of Adam is the sign of the gradient."""
    params = eqx.filter(unet_model(), eqx.is_inexact_array)
    gradient = jax.tree.map(lambda x: jnp.asarray(np.random.default_rng(x.size).normal(size=x.shape), x.dtype), params)
    optimizer = normalized_adam(0.01, slow=0.3, clip=None)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    seen = set()
    leaves = zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(gradient), jax.tree.leaves(updates), strict=True
    )
    for (path, weight), slope, update in leaves:
        name, weight, step = jax.tree_util.keystr(path), np.asarray(weight), -0.01 * np.sign(slope)
        axis = next((axis for end, axis in NORMALIZED.items() if name.endswith(end)), None)
        if name.startswith(".head") or axis is None:
            kind = "plain" if weight.ndim > 1 else "slow"
            expected = step * (weight.shape[1] ** -0.5 if weight.ndim > 1 else 0.3)
        else:
            kind, others = "normalized", tuple(i for i in range(weight.ndim) if i != axis)
            after = weight + step
            norm = np.sqrt((after**2).sum(axis=others, keepdims=True))
            expected = after * math.sqrt(weight.size / weight.shape[axis]) / norm - weight
        np.testing.assert_allclose(update, expected, rtol=2e-3, atol=2e-4)
        seen.add(kind)
    assert seen == {"normalized", "plain", "slow"}
    with refused("clip", got=0.0):
        normalized_adam(0.01, clip=0.0)


@pytest.mark.optimized
def test_averages_change_no_bit_of_training():
    (with_averages, _), (without, _) = trained(2, 1, ema=0.2), trained(2, 1)  # compiled separately
    for a, b in zip(jax.tree.leaves(with_averages[-1].model), jax.tree.leaves(without[-1].model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_state_counts_its_iterations():
    assert [int(state.step) for state in history()[0]] == [0, 1, 2, 3, 4]


def test_clipping_reports_the_gradient_as_it_was():
    _, clipped = history(learning_rate=None, optimizer=adam(0.05, clip=1e-3))
    assert float(clipped[0]["gradient_norm"]) > 1


def test_narrow_numbers_leave_the_state_wide_and_the_result_near():
    (narrow, numbers), (wide, exact) = history(compute_dtype=jnp.bfloat16), history()
    for a, b in zip(jax.tree.leaves(narrow[-1]), jax.tree.leaves(wide[-1]), strict=True):
        assert a.dtype == b.dtype
    for name in exact[0]:
        np.testing.assert_allclose(numbers[0][name], exact[0][name], rtol=0.05)
        assert float(numbers[0][name]) != float(exact[0][name])  # lower precision was used
    (same, _) = history(compute_dtype=jnp.float32)
    for a, b in zip(jax.tree.leaves(same[-1]), jax.tree.leaves(wide[-1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
