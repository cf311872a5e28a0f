"""`hoist` splits a step without changing a bit, and stores no more than necessary."""

from dataclasses import replace
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_recipes import parts_of
from vages import Batch
from vages.app.recipes import as_recipe, grbm
from vages.app.settings import CHECKERBOARD, DIGITS, Method
from vages.hoist import hoist

KEY = jax.random.key(0)
BATCH = 4


def shapes(draw):
    return sorted((x.shape, x.dtype.name) for x in jax.eval_shape(draw, KEY))


def primitives(function, *arguments):
    """The names of all primitives in a function, including those of jitted functions."""

    def names(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
                if hasattr(inner, "eqns"):
                    yield from names(getattr(inner, "jaxpr", inner))

    return list(names(jax.make_jaxpr(function)(*arguments).jaxpr))


def check_split(step, *arguments):
    """The split step has the same bits as the plain one, and noise is the same for one key and for several.

    Each is one program, as compilers do not combine roundings across programs.
    """
    draw, update = hoist(step, KEY, *arguments)
    keys = jax.random.split(jax.random.key(7), 3)
    same(jax.jit(step)(keys[1], *arguments), jax.jit(lambda key, *more: update(draw(key), *more))(keys[1], *arguments))
    same(jax.jit(draw)(keys[1]), jax.tree.map(lambda x: x[1], jax.jit(jax.vmap(draw))(keys)))
    return draw, update


def same(tree, other):
    bits = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(bits(a), bits(b))


def of_learner(learner, make, shape):
    """The learner's step as a function of arrays, and arguments for it."""
    state = learner.init(KEY, *make(jax.random.key(1)), batch=BATCH)
    params, static = eqx.partition(state, eqx.is_array)

    def step(key, params, batch):
        after, metrics = learner.step(key, eqx.combine(params, static), batch)
        return eqx.filter(after, eqx.is_array), metrics

    return step, params, Batch(jax.random.normal(jax.random.key(2), (BATCH, *shape)))


GRBM_SETTINGS = {"latents": 3, "batch": BATCH, "posterior_steps": 2, "unrolled": 2}
K, L, H, V = 2, 2, 3, 2  # posterior steps, samples, latents, dimension
FLOATS = {  # of noise per iteration and example
    "vages-dsm": V + (K + 2 * L) * H,
    "dsm": V,
    "bidsm": V + (K + 2 + L) * H,
    "vages-ksd": (K + L) * H,
    "ksd": 0,
    "is-ksd": L * H,
    "cd": V + 2 * H,
    "pcd": V + H,
    "nce": V,
    "vnce": V + (K + 1 + L) * H,
}


@pytest.mark.parametrize("method", get_args(Method))
def test_every_method_has_the_same_bits_and_keeps_its_noise_alone(method):
    recipe = replace(CHECKERBOARD, method=method, samples=L, **GRBM_SETTINGS)
    draw, _ = check_split(*of_learner(grbm.learner(recipe), parts_of(recipe, V), (V,)))
    assert sum(np.prod(shape) for shape, _ in shapes(draw)) == BATCH * FLOATS[method]
    assert all(dtype == ("bool" if method == "is-ksd" else "float32") for _, dtype in shapes(draw))


@pytest.mark.parametrize("method", ["vages-mdsm", "mdsm"])  # bidsm above covers an unrolled posterior
def test_so_have_methods_of_deep_models(method):
    small = {"width": 4, "depth": 1, "latents": 2, "head_width": 4, "batch": BATCH, "posterior_steps": 1, "unrolled": 1}
    recipe = replace(DIGITS, method=method, samples=L, corrector_steps=2, **small)
    step, *arguments = of_learner(as_recipe(recipe).make_learner(), parts_of(recipe, (1, 8, 8)), (1, 8, 8))
    draw, update = check_split(step, *arguments)
    assert "random_bits" not in primitives(update, jax.eval_shape(draw, KEY), *arguments)
    floats = {"vages-mdsm": 64 + (1 + 3 * 2 * L) * 2, "bimdsm": 64 + (1 + 1 + 1) * 2, "mdsm": 64}[method]
    assert sum(np.prod(shape) for shape, _ in shapes(draw)) == BATCH * floats


@pytest.mark.optimized
def test_seeds_under_vmap():
    def step(key, x):
        return x + jax.random.normal(key, x.shape) * jnp.sum(x)

    draw, update = hoist(step, KEY, jnp.zeros(3))
    keys, x = jax.random.split(KEY, 5), jnp.arange(15.0).reshape(5, 3)
    same(jax.jit(jax.vmap(step))(keys, x), jax.jit(jax.vmap(lambda key, x: update(draw(key), x)))(keys, x))

    def split_inside(key, x):
        draw, update = hoist(step, key, x)
        return update(draw(key), x)

    same(jax.jit(jax.vmap(step))(keys, x), jax.jit(jax.vmap(split_inside))(keys, x))


def test_a_step_without_randomness_draws_nothing():
    draw, _ = check_split(lambda key, x: {"twice": 2 * x, "constant": jnp.ones(3), "none": None}, jnp.ones(2))
    assert shapes(draw) == []


def test_keys_that_are_split_and_folded():
    def step(key, x):
        a, b, c = jax.random.split(key, 3)
        bits = jax.random.bits(jax.random.fold_in(c, 5), (3,))
        return x * jax.random.normal(a, (3,)) + jax.random.uniform(jax.random.fold_in(b, 1), (3,)), bits

    draw, update = check_split(step, jnp.ones(3))
    assert shapes(draw) == 2 * [((3,), "float32")] + [((3,), "uint32")]
    assert not any("random" in name for name in primitives(update, jax.eval_shape(draw, KEY), jnp.ones(3)))


def test_a_key_that_is_used_later_or_returned_is_kept():
    def step(key, x):
        return jax.random.split(key)[0], key, jax.random.bits(jax.random.wrap_key_data(x)), jax.random.bits(key)

    draw, _ = check_split(step, jnp.zeros(2, jnp.uint32))
    assert shapes(draw) == [((), "key<fry>"), ((), "key<fry>"), ((), "uint32")]


def test_old_keys_too():
    step = lambda key, x: (x + jax.random.normal(key, (3,)), key)
    key = jax.random.PRNGKey(3)
    draw, update = hoist(step, key, jnp.ones(3))
    same(jax.jit(step)(key, jnp.ones(3)), jax.jit(update)(jax.jit(draw)(key), jnp.ones(3)))
    assert [x.shape for x in draw(key)] == [(2,), (3,)]


def test_the_key_may_be_of_another_generator():
    """Its bits differ under `vmap`, so they are drawn in the step."""
    key = jax.random.key(0, impl="rbg")
    step = lambda key, x: x + jax.random.normal(key, (3,))
    draw, update = hoist(step, key, jnp.ones(3))
    same(step(key, jnp.ones(3)), update(draw(key), jnp.ones(3)))
    assert [x.dtype.name for x in draw(key)] == ["key<rbg>"]


def test_draws_in_a_loop_or_branch_that_reads_arguments_stay():
    def step(key, x):
        loop, branch, ahead = jax.random.split(key, 3)
        x, _ = jax.lax.scan(lambda x, key: (x + jax.random.normal(key), None), x, jax.random.split(loop, 4))
        x = jax.lax.cond(x > 0, lambda: x + jax.random.uniform(branch), lambda: x)
        return x + jax.random.normal(ahead)

    draw, update = check_split(step, jnp.zeros(()))
    assert shapes(draw) == [((), "float32"), ((), "key<fry>"), ((4,), "key<fry>")]
    assert "erf_inv" in primitives(update, jax.eval_shape(draw, KEY), jnp.zeros(()))


def test_a_loop_that_reads_the_key_alone_is_drawn():
    def step(key, x):
        return (
            x
            + jax.lax.scan(lambda total, key: (total + jax.random.normal(key), None), 0.0, jax.random.split(key, 4))[0]
        )

    draw, _ = check_split(step, jnp.zeros(()))
    assert shapes(draw) == [((), "float32")]


def test_draws_in_jitted_functions_are_taken_out_of_them():
    weights = jnp.arange(3.0)

    @jax.jit
    def inner(key, x):
        return x * jax.random.normal(key, (3,)) + weights

    @jax.jit
    def outer(key, x, scale):
        first, second = jax.random.split(key)
        return inner(first, x) + scale * inner(second, x), x

    draw, update = check_split(lambda key, x: outer(key, x, 2.0), jnp.ones(3))
    assert shapes(draw) == 2 * [((3,), "float32")]
    names = primitives(update, jax.eval_shape(draw, KEY), jnp.ones(3))
    assert not {"random_split", "random_bits", "erf_inv"} & set(names)


def test_jitted_functions_without_draws_stay_whole():
    def step(key, x):
        noise = jax.random.normal(key, (3,))
        return jax.jit(lambda x, noise: x + 2 * noise)(x, noise)

    draw, update = check_split(step, jnp.ones(3))
    assert primitives(update, jax.eval_shape(draw, KEY), jnp.ones(3)) == ["jit", "mul", "add"]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (lambda e: (0.5 * e, -e / 0.5), [((6,), "float32")]),  # several functions of one draw
        (lambda e: 2 * e.reshape(2, 3), [((2, 3), "float32")]),  # the step's own shape
        (lambda e: jnp.broadcast_to(e, (5, 6)) * 2, [((6,), "float32")]),  # small, then large
        (lambda e: jnp.where(e > 0, 2.0, 3.0), [((6,), "bool")]),  # large, then small
        (lambda e: e[:2], [((2,), "float32")]),
        (lambda e: jnp.broadcast_to(jnp.max(jnp.broadcast_to(e, (5, 6))), (9,)), [((), "float32")]),  # small in between
        (lambda e: (jnp.exp(e), jnp.sign(e)), 2 * [((6,), "float32")]),  # costly, so both are stored
        (lambda e: jnp.ones(1000), []),
    ],
)
def test_what_is_kept_is_as_small_as_can_be(values, kept):
    step = lambda key, x: jax.tree.map(lambda value: x * value, values(jax.random.normal(key, (6,))))
    draw, _ = check_split(step, jnp.ones(()))
    assert shapes(draw) == kept


def test_values_that_are_drawn_and_not_used_are_not_kept():
    def step(key, x):
        first, second = jax.random.split(key)
        jax.random.normal(second, (1000,))
        return x + jax.random.normal(first, (2,))

    draw, _ = check_split(step, jnp.ones(2))
    assert shapes(draw) == [((2,), "float32")]
    assert primitives(draw, KEY).count("erf_inv") == 1


@pytest.mark.optimized
def test_sums_and_products_stay():
    """Their last bits may depend on how many iterations are drawn together."""
    matrix = jax.random.normal(KEY, (50, 50))

    def step(key, x):
        noise = jax.random.normal(key, (50,))
        correlated = jax.random.multivariate_normal(key, jnp.zeros(50), jnp.eye(50))
        return x + matrix @ noise + jnp.sum(noise) + correlated

    draw, update = check_split(step, jnp.ones(50))
    assert shapes(draw) == 2 * [((50,), "float32")]
    assert not {"dot_general", "reduce_sum", "cholesky"} & set(primitives(draw, KEY))
    assert "random_bits" not in primitives(update, jax.eval_shape(draw, KEY), jnp.ones(50))


def test_effects_stay_in_their_place(capfd):
    def step(key, x):
        noise = jax.random.normal(key)
        jax.debug.print("noise {}", noise)
        jax.debug.print("x {}", x)
        return x + noise

    draw, update = hoist(step, KEY, jnp.zeros(()))
    drawn = jax.jit(draw)(KEY)
    jax.effects_barrier()
    assert capfd.readouterr().out == ""
    jax.jit(update)(drawn, jnp.ones(()))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.splitlines()) == [f"noise {drawn[0]}", "x 1.0"]


def test_constants_are_held_once_and_where_they_are_used():
    large = jnp.arange(5000.0)
    held = lambda function, *arguments: [x for x in jax.make_jaxpr(function)(*arguments).consts if x.size == 5000]
    draw, update = hoist(lambda key, x: (x + large, large[jax.random.randint(key, (2,), 0, 5)]), KEY, jnp.ones(5000))
    arrays = [*held(draw, KEY), *held(update, draw(KEY), jnp.ones(5000))]
    assert len(arrays) == 2
    assert all(x is large for x in arrays)
    draw, update = hoist(lambda key, x: x + large + jax.random.normal(key), KEY, jnp.ones(5000))
    assert not held(draw, KEY)
    assert held(update, draw(KEY), jnp.ones(5000))


def test_double_precision(float64):
    draw, _ = check_split(lambda key, x: x + jax.random.normal(key, (3,)), jnp.ones(3))
    assert shapes(draw) == [((3,), "float64")]


def test_memory_may_be_donated():
    step = lambda key, x: (x + (noise := jax.random.normal(key, (3,))), x * noise)
    draw, update = hoist(step, KEY, jnp.ones(3))
    same(jax.jit(step)(KEY, jnp.ones(3)), jax.jit(update, donate_argnums=(0, 1))(draw(KEY), jnp.ones(3)))


def test_a_step_that_cannot_be_split_is_left_as_it_is_and_says_why():
    def step(key, x, counter):
        counter[...] += 1
        return x + jax.random.normal(key)

    counter = jax.new_ref(jnp.zeros(()))
    with pytest.warns(RuntimeWarning, match="^step: .*references"):
        draw, update = hoist(step, KEY, jnp.ones(()), counter)
    assert update(draw(KEY), jnp.ones(()), counter) == 1 + jax.random.normal(KEY)
    assert counter[...] == 1


def test_errors_of_the_step_are_its_own():
    def step(key, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        hoist(step, KEY, jnp.ones(()))
