"""Bad input is refused before anything is computed: the argument, what was expected, what came."""

import jax
import jax.numpy as jnp
import pytest

from errors import refused
from vages import GRBM, EnergyModel, gradient_estimate, vaes, vages_dsm
from vages.checks import check_inputs
from vages.domains import Real
from vages.objectives import Noised

MODEL = GRBM.init(jax.random.key(0), 3, 2)
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
