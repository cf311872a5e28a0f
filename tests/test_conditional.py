"""p(v | h) that users give is compared with their energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vages
from errors import refused
from vages import Binary, EnergyModel, Real
from vages.samplers.exact import log_masses

RNG = np.random.default_rng(0)


def linear(conditional, constant=0.0, size=9):
    weight = jnp.asarray(RNG.normal(size=(size, 2)), jnp.float32)
    energy = lambda p, v, h: constant + 0.5 * jnp.sum((v - p @ h) ** 2)
    return EnergyModel(energy, weight, v=Real(size), h=Binary(2), conditional=conditional)


def coupled(logit, constant=0.0):
    energy = lambda J, v, h: constant - J * jnp.sum((2 * v - 1) * (2 * h - 1))
    conditional = lambda J, h: vages.Bernoulli(logit * (2 * h - 1))
    return EnergyModel(energy, jnp.array(0.1), v=Binary(3), h=Binary(3), conditional=conditional)


@pytest.mark.parametrize(
    "model",
    [
        linear(lambda p, h: vages.Gaussian(p @ h, jnp.zeros(9).at[3].set(jnp.log(1.2)))),
        linear(lambda p, h: vages.Gaussian((p @ h).at[3].multiply(0.8), jnp.zeros(9))),
        linear(lambda p, h: vages.Gaussian(p @ h, jnp.full(9, jnp.log(1.1))), constant=1e4),
        linear(lambda p, h: vages.Gaussian((p @ h).at[700].add(0.2), jnp.zeros(784)), size=784),
        coupled(30.0),
        coupled(0.21),
    ],
    ids=["std", "mean", "constant", "image", "peaked", "weight"],
)
def test_small_errors_of_a_conditional_are_found(model):
    with refused("conditional"):
        vages.log_partition(jax.random.key(0), model)


def test_every_coordinate_of_discrete_v_is_checked():
    """Also with two states of h only."""
    weight = jnp.asarray([3.0, -3.0, 2.0, -2.0, 0.0, 1.0])
    energy = lambda p, v, h: -jnp.sum(weight * v) * h[0]
    conditional = lambda p, h: vages.Bernoulli(weight * h[0] + p)
    for row in np.eye(6, dtype=np.float32):
        with refused("conditional"):
            log_masses(EnergyModel(energy, jnp.asarray(row), v=Binary(6), h=Binary(1), conditional=conditional))


def test_a_conditional_is_not_refused_for_rounding():
    """The energies are large, or the difference of large numbers, or infinite for some v."""
    mean, std = lambda p, h: 1000 + p @ h, jnp.log(0.5)
    conditional = lambda p, h: vages.Gaussian(mean(p, h), jnp.full(9, std))
    powers = lambda p, v, h: 2 * jnp.sum(v**2) - 4 * jnp.sum(v * mean(p, h)) + 2 * jnp.sum(mean(p, h) ** 2)
    squares = lambda p, v, h: 1e5 + 2 * jnp.sum((v - mean(p, h)) ** 2)
    weight = jnp.asarray(RNG.normal(size=(9, 2)), jnp.float32)
    for energy in (powers, squares):
        log_masses(EnergyModel(energy, weight, v=Real(9), h=Binary(2), conditional=conditional))
    log_masses(linear(lambda p, h: vages.Gaussian(p @ h, jnp.zeros(3072)), size=3072))
    log_masses(coupled(0.2, constant=1e6))
    walled = lambda p, v, h: jnp.where(v[0] > h[0], jnp.inf, 0.0)
    only_below = lambda p, h: vages.Bernoulli(jnp.where(h > 0, 0.0, -1e4))
    log_masses(EnergyModel(walled, 0.0, v=Binary(1), h=Binary(1), conditional=only_below))
