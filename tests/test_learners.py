"""All learners have the same contract: one table of methods for the same tests."""

from dataclasses import replace
from functools import cache
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fitting import fit_state
from small_recipes import parts_of
from vages import (
    DSM,
    GRBM,
    Batch,
    ExactPosterior,
    GaussianPosterior,
    Learner,
    LinearGaussian,
    Variational,
    fisher,
    infer,
    kl,
)
from vages.app.recipes import grbm
from vages.app.settings import CHECKERBOARD, Method
from vages.data import Batches
from vages.samplers import gibbs_sample
from vages.training import compile_chunk, init_seeds, one_seed

METHODS = get_args(Method)
BATCH = 50
CHUNK = 50
SMALL = replace(CHECKERBOARD, latents=3, batch=BATCH, posterior_steps=2, unrolled=2)


@cache
def teacher():
    """A model with two well-separated modes, and data from it."""
    model = GRBM(
        jnp.asarray([[6.0, 0.0, 1.0], [6.0, 1.0, 0.0]]),
        -jnp.ones(2),
        jnp.asarray([-3.0, 0.0, 0.0]),
        jnp.log(0.5) * jnp.ones(2),
    )
    return model, gibbs_sample(jax.random.key(0), model, 4000, steps=200).v


@cache
def student(method, **settings):
    """The method's learner, and its state for a perturbed copy of the teacher."""
    recipe = replace(SMALL, method=method, learning_rate=0.01, sigma=0.2, bandwidth=0.5, **settings)
    learner = grbm.learner(recipe)
    model, _ = teacher()
    _, posterior = parts_of(recipe, 2)(jax.random.key(1))
    shift = 0.3 * jax.random.normal(jax.random.key(2), (2,))
    perturbed = GRBM(model.weight * 0.8, model.visible_bias + shift, model.latent_bias + 0.5, model.log_sigma + 0.4)
    return learner, learner.init(jax.random.key(3), perturbed, posterior, batch=BATCH)


def arrays(state):
    return jax.tree.leaves(eqx.filter(state, eqx.is_array))


@eqx.filter_jit
def likelihood(model, data):
    return -jnp.mean(jax.vmap(model.free_energy)(data)) - model.log_partition()


@cache
def trained(method, optimized=False):
    """The initial state, a function that trains it, and the result of a chunk; once for each way of compiling."""
    learner, state = student(method, **{"posterior_steps": 1} if optimized else {})  # more would compile for a minute
    chunk = compile_chunk(learner, many=False)
    _, data = teacher()
    batches = Batches(len(data), BATCH, 0)

    def run(state, start, steps, key=7):
        rows = jnp.asarray(batches.indices(start, steps))
        return chunk(state, Batch(data), rows, jax.random.key(key), jnp.asarray(start, jnp.uint32))

    return state, run, run(state, 0, CHUNK)


@pytest.mark.parametrize("method", METHODS)
def test_a_perturbed_model_moves_towards_the_truth(method):
    state, run, (after, metrics) = trained(method)
    for start in range(CHUNK, 8 * CHUNK, CHUNK):
        after, metrics = run(after, start, CHUNK)
    model, data = teacher()
    truth, before, now = (float(likelihood(model, data)) for model in (model, state.model, after.model))
    assert before < truth - 0.2
    assert now > before + 0.5 * (truth - before)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(metrics))
    assert {"loss", "gradient_norm"} <= set(metrics)


def same(state, other):
    for a, b in zip(arrays(state), arrays(other), strict=True):
        np.testing.assert_array_equal(a, b)


def cut_to_pieces(method, optimized=False):
    """One loop gives the same bits as one iteration at a time, although the compiler removes loops of one iteration."""
    state, run, (after, _) = trained(method, optimized)
    for i in range(CHUNK):
        state, _ = run(state, i, 1)
    same(state, after)


@pytest.mark.parametrize("method", ["vages-dsm", "is-ksd", "pcd", "vnce"])  # test_hoist.py covers all methods
def test_the_result_does_not_depend_on_how_iterations_are_cut_into_chunks(method):
    cut_to_pieces(method)


@pytest.mark.optimized
def test_not_where_they_are_compiled_as_for_users_either():
    """With NCE, a loop of one iteration would round differently if it were compiled as such."""
    cut_to_pieces("nce", optimized=True)


@pytest.mark.optimized
def test_nor_on_how_long_the_chunks_are():
    state, run, (after, _) = trained("nce", optimized=True)
    middle, _ = run(state, 0, CHUNK // 2)
    same(run(middle, CHUNK // 2, CHUNK // 2)[0], after)


@pytest.mark.optimized
def test_nor_do_the_results_of_several_seeds():
    learner, state = student("nce")
    states = jax.tree.map(lambda x: jnp.stack([x, x]) if eqx.is_array(x) else x, state)
    whole, single = (
        fit_state(learner, states, teacher()[1], steps=4, batch=BATCH, seed=(1, 2), chunk=chunk).state
        for chunk in (4, 1)
    )
    same(whole, single)


@pytest.mark.parametrize("method", ["vages-dsm", "is-ksd", "pcd", "vnce"])  # all kinds of noise
def test_the_same_key_gives_the_same_bits(method):
    state, run, _ = trained(method)
    (one, _), (again, _), (other, _) = (run(state, 0, 1, key) for key in (5, 5, 6))
    same(one, again)
    if method not in ("ksd",):  # the one method without noise
        # the weights alone are not enough: Adam's first step is the sign of the gradient
        moments = zip(jax.tree.leaves(one.optimizer), jax.tree.leaves(other.optimizer), strict=True)
        assert not all(np.array_equal(a, b) for a, b in moments)
    assert jax.tree.structure(eqx.filter(one, eqx.is_array)) == jax.tree.structure(eqx.filter(state, eqx.is_array))


@pytest.mark.parametrize("method", ["vages-dsm", "pcd"])
def test_many_seeds_are_many_single_runs(method):
    recipe = replace(SMALL, method=method)
    learner = grbm.learner(recipe)
    _, data = teacher()
    seeds = (3, 4)
    states = init_seeds(learner, seeds, parts_of(recipe, 2), BATCH)
    together = fit_state(learner, states, data, steps=20, batch=BATCH, seed=seeds, chunk=10)
    for i, seed in enumerate(seeds):
        alone = fit_state(learner, one_seed(states, i), data, steps=20, batch=BATCH, seed=seed, chunk=20)
        np.testing.assert_allclose(alone.state.model.weight, together.state.model.weight[i], rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(
            alone.history[-1]["loss"], np.mean([row["loss"][i] for row in together.history]), rtol=1e-3
        )


@pytest.mark.parametrize(
    ("method", "part"),
    [("cd", "ContrastiveDivergence"), ("pcd", "ContrastiveDivergence"), ("nce", "NCE"), ("dsm", "ExactPosterior")],
)
def test_closed_forms_are_refused_in_a_narrow_dtype(method, part):
    recipe = replace(SMALL, method=method)

    def start():
        learner = Learner(grbm.objective(recipe), learning_rate=1e-3, compute_dtype=jnp.bfloat16)
        learner.init(jax.random.key(0), *parts_of(recipe, 2)(jax.random.key(1)), batch=BATCH)

    with pytest.raises(ValueError, match=f"^compute_dtype: .*{part}.*got bfloat16"):
        start()


@pytest.mark.parametrize("divergence", [kl, fisher])
def test_continuous_latents_learn_with_either_divergence(divergence):
    """A linear-Gaussian model of data from another one: the likelihood rises and q approaches the posterior."""
    truth = LinearGaussian.init(jax.random.key(0), 2, 2)
    factor = jnp.linalg.cholesky(jnp.linalg.inv(truth.marginal_precision()))
    data = truth.marginal_mean()[None] + jax.random.normal(jax.random.key(1), (4000, 2)) @ factor.T
    model = eqx.tree_at(lambda m: m.log_sigma, truth, truth.log_sigma - 0.7)
    learner = Learner(DSM(0.3, Variational(2)), learning_rate=0.01, posterior_steps=2, divergence=divergence)
    state = learner.init(jax.random.key(2), model, GaussianPosterior.linear(jax.random.key(3), 2, 2), batch=100)
    fitted = fit_state(learner, state, data, steps=500, batch=100)
    now, before = (float(jnp.mean(jax.vmap(m.log_prob)(data))) for m in (fitted.state.model, model))
    assert now > before + 0.05
    q, p = (infer(fitted.state.model, r, data) for r in (fitted.state.posterior, ExactPosterior()))
    assert float(jnp.mean((q.mean - p.mean) ** 2)) < 0.05
