"""Invalid input is refused before anything is computed: the argument, what was expected, what was given."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from vages import (
    GRBM,
    BernoulliPosterior,
    EnergyModel,
    ExactPosterior,
    GaussianPosterior,
    covariance_term,
    expectation_term,
    gradient_estimate,
    infer,
    score,
    surrogate,
    vaes,
    vages_dsm,
)
from vages.checks import check_inputs, struct_of
from vages.domains import Binary, Real
from vages.objectives import Noised

KEY = jax.random.key(0)
MODEL = GRBM.init(KEY, 3, 2)
V, H = jnp.ones((5, 3)), jnp.ones((5, 4, 2))


@pytest.mark.parametrize(
    ("v", "h", "z", "error", "says"),
    [
        (V, H[:, :1], V, ValueError, "h: .*got 1"),
        (V[0], H, V, ValueError, r"v: .*got \(3,\)"),
        (V[:, :2], H, V, ValueError, r"v: .*got \(5, 2\)"),
        (V[None], H, V, ValueError, r"v: .*got \(1, 5, 3\)"),
        (V[:0], H, V, ValueError, r"v: .*got \(0, 3\)"),
        (V.astype(int), H, V, TypeError, "v: .*got int32"),
        (V, H[:, 0], V, ValueError, r"h: .*got \(5, 2\)"),
        (V, H[:3], V, ValueError, r"h: .*got \(3, 4, 2\)"),
        (V, H.astype(complex), V, TypeError, "h: .*got complex64"),
        (V, H, V[:, :2], ValueError, r"z: .*got \(5, 2\)"),
        (V, H, V.astype(jnp.bfloat16), TypeError, "z: .*got bfloat16"),
        (V.at[2, 1].set(jnp.nan), H, V, ValueError, r"v: .*got nan at \(2, 1\)"),
        (V, H.at[0, 1, 1].set(jnp.inf), V, ValueError, r"h: .*got inf at \(0, 1, 1\)"),
    ],
)
def test_vages_refuses(v, h, z, error, says):
    with pytest.raises(error, match=f"^{says}"):
        gradient_estimate(MODEL, v, h, z)


def test_what_is_not_an_array_is_refused():
    with refused("v", got="list", kind=TypeError):
        check_inputs(MODEL, [[1.0, 2.0, 3.0]])


def test_shapes_are_refused_under_jit_too():
    with refused("h", got=1):
        jax.jit(lambda v, h: gradient_estimate(MODEL, v, h, v))(V, H[:, :1])


@pytest.mark.parametrize(
    ("energy", "got"),
    [
        (lambda params, v, h: params * v**2, "float32[3]"),
        (lambda params, v, h: (params * jnp.sum(v))[None], "float32[1]"),
        (lambda params, v, h: jnp.sum(h.astype(int)), "int32[]"),
    ],
)
def test_an_energy_that_is_not_a_scalar_is_refused(energy, got):
    model = EnergyModel(energy, jnp.ones(()), Real(3), Real(2))
    with refused("log_joint", got=got):
        vaes(model, V, H)


def test_dsm_needs_two_samples_for_each_estimator():
    with refused("h", got=3):
        vages_dsm(MODEL, Noised(V, V), H[:, :3])


def test_a_posterior_is_asked_about_v_of_the_domain_alone(as_users_have_it):
    """Many energies broadcast one number per row. That gave the posterior of another v, without an error."""
    model = EnergyModel(lambda params, v, h: jnp.sum((v - params @ h) ** 2), jnp.ones((3, 2)), Real(3), Binary(2))
    for posterior in (ExactPosterior(), BernoulliPosterior.linear(jax.random.key(1), 3, 2)):
        for v in (V[:, :1], V[0], V[:0]):
            with refused("v", got=v.shape) as caught:
                infer(model, posterior, v)
            assert "; " in str(caught.value)  # the advice
        for v, got in ((V.astype(int), "int32"), (V.tolist(), "list")):
            with refused("v", got=got, kind=TypeError):
                infer(model, posterior, v)  # pyright: ignore[reportArgumentType]
    with refused("posterior", got="NoneType", kind=TypeError):
        infer(model, None, V)  # pyright: ignore[reportArgumentType]


def test_a_context_has_a_row_for_each_example_everywhere():
    energy = lambda params, v, h, context: jnp.sum((v - params[context["label"]] - h) ** 2)
    model = EnergyModel(energy, jnp.zeros((2, 3)), Real(3), Real(3))
    posterior = GaussianPosterior.linear(jax.random.key(1), 3, 3, context={"label": 2})
    by_vaes = score(model, posterior)
    for ask in (lambda context: infer(model, posterior, V, context), lambda context: by_vaes(KEY, V, context)):
        with refused("context['label']", got="shape (3,)"):
            ask({"label": jnp.zeros(3, int)})
        with refused("context['label']", got="int", kind=TypeError):
            ask({"label": 1})
    one, same = (by_vaes(KEY, V[0], {"label": label}) for label in (1, jnp.array(1)))
    assert jnp.array_equal(one, same)


def test_what_is_no_model_is_named(as_users_have_it):
    posterior = BernoulliPosterior.linear(jax.random.key(1), 3, 2)
    asked = (
        lambda: infer(posterior, MODEL, V),  # pyright: ignore[reportArgumentType]
        lambda: score(posterior, MODEL),  # pyright: ignore[reportArgumentType]
        lambda: vaes(posterior, V, H),  # pyright: ignore[reportArgumentType]
    )
    for ask in asked:
        with refused("model", got="BernoulliPosterior", kind=TypeError):
            ask()


@pytest.mark.parametrize("estimator", [vaes, expectation_term, covariance_term])
def test_samples_of_h_cannot_be_left_out(estimator):
    with refused("h", got="None", kind=TypeError):
        estimator(MODEL, V, None)


def test_weights_are_not_negative():
    with refused("weights", got="-1"):
        vaes(MODEL, V, H, jnp.tile(jnp.array([2.0, -1.0, 0.0, 0.0]), (5, 1)))


def test_the_score_at_float64_of_numpy_is_a_direction_there(as_users_have_it):
    """JAX computes in float32. The score that `vaes` gave was refused as z because it was not float64."""
    v: Any = np.random.default_rng(0).normal(size=(5, 3))
    narrow = jnp.asarray(v.astype(np.float32))
    found, wanted = (surrogate(MODEL, x, H, vaes(MODEL, x, H)) for x in (v, narrow))
    assert jnp.array_equal(found, wanted)


def test_shapes_have_axes_taken_off_and_others_put_before():
    rows = np.zeros((5, 3, 2))
    assert struct_of(rows).shape == (5, 3, 2)
    assert struct_of(rows, drop=2).shape == (2,)
    assert struct_of(rows, 7, 8, drop=1).shape == (7, 8, 3, 2)


@pytest.mark.parametrize("dtype", ["float64", "int64", "float32", "bfloat16", "uint8", "bool"])
def test_shapes_have_the_dtype_of_the_array_on_the_device(dtype):
    """JAX 0.11 warns of other dtypes. The score at float64 rows of NumPy was refused where warnings are errors."""
    rows = np.zeros(4, jnp.dtype(dtype))
    for wide in (False, True):
        with jax.enable_x64(wide):
            assert struct_of(rows).dtype == jnp.asarray(rows).dtype


def test_the_shape_of_a_random_key_is_that_of_a_key():
    keys = jax.random.split(jax.random.key(0), 3)
    assert struct_of(keys, drop=1).dtype == keys.dtype
