"""No random key is used twice, so that no random numbers are the same where they should be independent.

With JAX's default keys, `fold_in(key, 1)` is `split(key)[1]`. So keys are compared by their bits, in programs that are
not compiled.
"""

from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from vages import (
    DSM,
    GRBM,
    KSD,
    MDSM,
    VNCE,
    Batch,
    BernoulliPosterior,
    Binary,
    CategoricalPosterior,
    ContrastiveDivergence,
    Corrector,
    EnergyModel,
    ExactPosterior,
    FeaturePosterior,
    GaussianPosterior,
    Held,
    Heun,
    Importance,
    JointPosterior,
    Learner,
    LinearGaussian,
    NoiseConditionalDSM,
    NoiseConditionalEBLVM,
    NoiseRange,
    Real,
    Samples,
    Variational,
    fisher,
    kl,
)
from vages.domains import Categorical
from vages.evaluation import partition

KEYS = jax.random.split(jax.random.key(0), 8)
DATA = Batch(jax.random.normal(KEYS[0], (4, 3)))
LABELED = DATA._replace(context={"label": jnp.zeros(4, jnp.int32)})
DRAWS = ("bernoulli", "bits", "categorical", "choice", "exponential", "gumbel", "normal", "permutation", "rademacher")
DRAWS += ("randint", "uniform")


@pytest.fixture
def uses(monkeypatch):
    """The functions of jax.random that were called with each key, by its bits."""
    found = defaultdict(list)

    def noted(name):
        function = getattr(jax.random, name)

        def call(key, *args, **how):  # the callback gets the bits of each row under vmap
            jax.debug.callback(lambda bits: found[bits.tobytes()].append(name), jax.random.key_data(key))
            return function(key, *args, **how)

        monkeypatch.setattr(jax.random, name, call)

    for name in (*DRAWS, "split", "fold_in"):
        noted(name)
    with jax.disable_jit():
        yield found


def check(uses, least):
    """One draw or split for each key, or any number of `fold_in`."""
    jax.effects_barrier()
    assert not [names for names in uses.values() if len(names) > 1 and set(names) != {"fold_in"}]
    assert len(uses) >= least


def mixed():
    def energy(params, v, h):
        return (
            jnp.sum((v - params @ h["z"]) ** 2) / 2 + jnp.sum(h["z"] ** 2) / 2 + jnp.sum(h["b"]) + h["c"][0, 0] * v[0]
        )

    model = EnergyModel(energy, jnp.ones((3, 2)), v=Real(3), h={"z": Real(2), "b": Binary(2), "c": Categorical(1, 3)})
    parts = {
        "z": GaussianPosterior.linear(KEYS[1], 3, 2),
        "b": BernoulliPosterior.linear(KEYS[2], 3, 2),
        "c": CategoricalPosterior.linear(KEYS[3], 3, 1, 3),
    }
    return model, JointPosterior(parts)


def grbm():
    return GRBM.init(KEYS[1], 3, 2), BernoulliPosterior.linear(KEYS[2], 3, 2)


def gaussian():
    return LinearGaussian.init(KEYS[1], 3, 2), GaussianPosterior.linear(KEYS[2], 3, 2)


def exact():
    return grbm()[0], ExactPosterior()


def labeled():
    sizes: Any = {"width": 4, "depth": 1, "features": 3, "head_width": 3, "embedding": 4}
    model = NoiseConditionalEBLVM.vectors(KEYS[1], 3, sigma_data=1.0, h=Real(2), classes=2, normalized=True, **sizes)
    return model, FeaturePosterior.init(KEYS[2], model, width=4)


CORRECTED = Variational(2, Corrector(2, 0.1))


@pytest.mark.parametrize(
    ("make", "objective", "batch"),
    [
        (grbm, KSD(1.0), DATA),
        (grbm, DSM(0.3, Importance(3)), DATA),
        (gaussian, MDSM(NoiseRange(0.1, 1.0), CORRECTED), DATA),
        (gaussian, VNCE(), DATA),
        (exact, ContrastiveDivergence(2, persistent=True), DATA),
        (mixed, DSM(0.3), DATA),
        (labeled, NoiseConditionalDSM(1.0, label_dropout=0.3, level_weight=1.0), LABELED),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_an_iteration(uses, make, objective, batch):
    model, posterior = make()
    divergence = fisher if make is gaussian else kl
    learner = Learner(objective, learning_rate=1e-3, posterior_steps=2, divergence=divergence)
    state = learner.init(KEYS[4], model, posterior, len(batch.v), batch.context)
    uses.clear()
    learner.step(KEYS[5], state, batch)
    check(uses, 2)


def test_heun(uses):
    """Neither for held entries, nor for repeats of a step, nor for h."""
    model, posterior = labeled()
    held = Held(jnp.asarray([[True, False, False]]), jnp.zeros((1, 3)))
    Heun(posterior, steps=3, churn=1.0, resample=3).draw(KEYS[6], model, 2, held=held)
    check(uses, 50)


def test_log_z(uses, monkeypatch):
    """The chains that choose the step sizes start at other noise than those that are weighted, in every variable."""
    model = EnergyModel(lambda p, v, h: jnp.sum(v**2) + jnp.sum(h**2), jnp.zeros(1), v=Real(1), h=Real(1))
    drawn = Samples(jnp.arange(5.0)[:, None], jnp.arange(5.0)[:, None], 1.0, {}, {}, 0, 0)
    for name in ("_pilot", "_anneal"):
        monkeypatch.setattr(partition, name, lambda key, *_: jax.random.normal(key, (3,)))
    partition._both_ways(KEYS[7], model, None, 4, 3, drawn)
    check(uses, 9)
