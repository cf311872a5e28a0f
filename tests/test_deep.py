"""Deep models and their posteriors, also in reduced precision."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from small_nets import IMAGE, KEY, filled, normal, quick
from truth import relative_error
from vages.distributions import Gaussian
from vages.domains import Real
from vages.estimators import gradient_estimate, vaes
from vages.models import EBM, GRBM, DeepEBLVM, EnergyModel, Mixed, encode
from vages.models.mixed import cast
from vages.nets import ResidualMLP
from vages.objectives import Enumerated
from vages.posteriors import (
    BernoulliPosterior,
    ExactPosterior,
    GaussianPosterior,
    MixedPosterior,
    fisher,
    has_parameters,
    infer,
)


def small(**sizes):
    return filled(DeepEBLVM.images, IMAGE, **{"width": 2, "depth": 1, "latents": 3, "head_width": 5, **sizes})


def dtypes(tree):
    return {leaf.dtype.name for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)}


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (lambda: DeepEBLVM.images(KEY, (1, 32, 32), width=64, depth=2, latents=50), 9_859_250),
        (lambda: DeepEBLVM.images(KEY, (3, 32, 32), width=128, depth=3, latents=50), 63_936_562),
        (lambda: EBM.images(KEY, (3, 32, 32), width=128, depth=3), 62_339_075),
        (lambda: GaussianPosterior.convolutional(KEY, (1, 32, 32), 50), 779_364),
        (lambda: DeepEBLVM.vectors(KEY, 2, width=100, depth=3, latents=10, head_width=100), 20_500 + 1_010 + 2_100),
    ],
)
def test_the_size_of_the_papers_models(make, parameters):
    """Only shapes are computed; nothing of this size is allocated."""
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(eqx.filter_eval_shape(make))) == parameters


def test_the_energy(float64):
    for model in (small(), filled(DeepEBLVM.vectors, IMAGE, width=4, depth=2, latents=3, head_width=5)):
        assert (model.v.shape, model.h.shape) == (IMAGE, (3,))
        v, h = normal(1, *IMAGE), normal(2, 3)
        f, energy = quick(lambda m, v, h: (m.features(v), -m.log_joint(m.features(v), h)))(model, v, h)
        x = np.asarray(model.head.weight) @ np.concatenate([np.asarray(f) + np.asarray(h), h]) + np.asarray(
            model.head.bias
        )
        assert relative_error(energy, np.sum(np.where(x > 0, x, np.exp(x) - 1) ** 2)) < 1e-13
    assert filled(DeepEBLVM.images, (1, 16, 8), width=2, depth=1, latents=3).head.out_features == 4 * 2 * 2 * 1


@pytest.mark.parametrize("make", [EBM.images, EBM.vectors])
def test_a_plain_ebm_has_the_energy_of_its_head_and_its_score_exactly(float64, make):
    model = filled(make, IMAGE, width=2, depth=1)
    assert (model.v.shape, model.h.shape) == (IMAGE, (0,))
    v = normal(1, 2, *IMAGE)

    @quick
    def run(model, v):
        log_p = jax.vmap(lambda v: -model.head(jax.nn.elu(model.network(v))))
        features = jax.vmap(model.features)(v)
        q = infer(model, ExactPosterior(), v)
        (latents,) = Enumerated()(KEY, model, q, encode(model, v))
        score = jax.grad(lambda v: jnp.sum(log_p(v)))(v)
        h = q.sample(KEY, 3)
        return (
            h,
            latents.score(model, encode(model, v)),
            vaes(model, v, h),
            score,
            jax.vmap(model.log_joint)(features, h[:, 0]),
            log_p(v),
        )

    empty, exact, estimate, score, log_joint, log_p = run(model, v)
    assert empty.shape == (2, 3, 0)
    assert relative_error(estimate, score) < 1e-12
    assert relative_error(exact, score) < 1e-12
    assert relative_error(log_joint, log_p) < 1e-12
    assert not has_parameters(ExactPosterior())


def test_posteriors_of_images_and_vectors():
    for posterior, shape in (
        (filled(GaussianPosterior.convolutional, IMAGE, 3, width=2), IMAGE),
        (filled(GaussianPosterior.mlp, IMAGE, 3, width=4, depth=2), IMAGE),
        (filled(GaussianPosterior.mlp, 5, 3, width=4, depth=2), (5,)),
    ):
        v = normal(1, 2, *shape)
        plain = EnergyModel(lambda params, v, h: jnp.sum(v) * jnp.sum(h), None, Real(*shape), Real(3))
        both = quick(lambda p, v: jax.vmap(p.network.network)(v))(posterior, v)
        q = quick(infer)(plain, posterior, v)
        np.testing.assert_array_equal(jnp.concatenate([q.loc, q.log_std], axis=1), both)
        assert q.mean.shape == (2, 3)


def test_a_mixed_model_is_close_and_its_gradients_are_wide():
    model = filled(DeepEBLVM.vectors, IMAGE, width=16, depth=2, latents=3, head_width=5)
    v, z, h = normal(1, 2, *IMAGE), normal(2, 2, *IMAGE), normal(3, 2, 3, 3)

    @quick
    def run(model):
        return jax.vmap(model.features)(v), vaes(model, v, h), gradient_estimate(model, v, h, z)

    plain, mixed = run(model), run(Mixed(model, jnp.bfloat16))
    assert dtypes(mixed) == {"float32"}
    assert isinstance(mixed[2], Mixed)
    assert mixed[2].dtype == jnp.bfloat16
    assert isinstance(mixed[2].model, DeepEBLVM)
    flat = lambda tree: np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])
    for got, expected in zip(mixed, plain, strict=True):
        assert 1e-4 < relative_error(flat(got), flat(expected)) < 2e-2  # bfloat16 keeps 8 bits


def test_a_mixed_model_computes_its_features_narrow_and_its_energy_wide():
    v, h = jnp.ones(IMAGE), jnp.ones(3)
    for model in (small(), filled(EBM.images, IMAGE, width=2, depth=1)):
        mixed = Mixed(model, "bfloat16")
        assert (mixed.v.shape, mixed.h.shape) == (model.v.shape, model.h.shape)
        program = jax.make_jaxpr(mixed.features)(v)
        convolutions = [e for e in program.jaxpr.eqns if e.primitive.name == "conv_general_dilated"]
        assert len(convolutions) == 9  # the first layer is a matrix product
        assert {e.outvars[0].aval.dtype.name for e in convolutions} == {"bfloat16"}
        (features,) = program.out_avals
        assert features.dtype == jnp.float32
        assert "bf16" not in str(jax.make_jaxpr(mixed.log_joint)(jnp.zeros(features.shape), h))


def test_a_mixed_image_model_is_close():
    model, v = small(), normal(1, *IMAGE)
    features = quick(lambda model, v: (model.features(v), Mixed(model, jnp.bfloat16).features(v)))
    plain, mixed = features(model, v)
    assert 1e-4 < relative_error(mixed, plain) < 2e-2


def test_a_mixed_model_keeps_float64(float64):
    model, v = filled(DeepEBLVM.vectors, 4, width=4, depth=2, latents=3, head_width=5), normal(1, 4)
    mixed = Mixed(model, jnp.float32).features(v)
    assert mixed.dtype == jnp.float64
    assert 1e-12 < relative_error(mixed, model.features(v)) < 1e-5


def test_only_floating_arrays_are_cast():
    params = {"w": jnp.ones(2), "n": jnp.arange(2), "key": KEY, "name": "x", "flag": jnp.asarray(True), "c": 0.5}
    low = cast(params, jnp.bfloat16)
    assert (low["w"].dtype, low["n"].dtype, low["flag"].dtype) == (jnp.bfloat16, jnp.int32, jnp.bool_)
    assert low["key"] is KEY
    assert (low["name"], low["c"]) == ("x", 0.5)

    def features(params, v):
        return {"pull": params["w"] * v[params["n"]], "n": params["n"]}

    def energy(params, features, h):
        return params["c"] * jnp.sum(features["pull"] * h * params["w"])

    mixed = Mixed(EnergyModel(energy, params, Real(2), Real(2), features), jnp.bfloat16)
    out = mixed.features(jnp.ones(2))
    assert (out["pull"].dtype, out["n"].dtype) == (jnp.float32, jnp.int32)
    assert float(mixed.log_joint(out, jnp.ones(2))) == -1.0


@pytest.mark.parametrize("posterior", [GaussianPosterior.mlp, GaussianPosterior.convolutional])
def test_a_mixed_posterior_is_close_and_its_gradients_are_wide(posterior):
    sizes = {"width": 4, "depth": 2} if posterior is GaussianPosterior.mlp else {"width": 2}
    plain = filled(posterior, IMAGE, 3, **sizes)
    mixed, model = MixedPosterior(plain, jnp.bfloat16), small()
    v = normal(1, 2, *IMAGE)

    @quick
    def run(posterior):
        loss = lambda posterior: jnp.mean(fisher(KEY, model, posterior, v))
        return infer(model, posterior, v), eqx.filter_grad(loss)(posterior)

    (q, gradient), (low, low_gradient) = run(plain), run(mixed)
    assert dtypes((low, low_gradient)) == {"float32"}
    assert isinstance(low_gradient, MixedPosterior)
    assert 1e-4 < relative_error(low, q) < 2e-2
    assert relative_error(low_gradient.posterior, gradient) < 0.2


def test_mixed_posteriors_of_other_kinds():
    grbm, v = filled(GRBM.init, 5, 4), normal(0, 2, 5)
    both = lambda p: tuple(infer(grbm, p, v) for p in (p, MixedPosterior(p, jnp.bfloat16)))
    for posterior in (ExactPosterior(), filled(BernoulliPosterior.linear, 5, 4)):
        q, low = quick(both)(posterior)
        assert dtypes(low) == {"float32"}
        assert type(low) is type(q)
        assert low.temperature == q.temperature
        assert relative_error(low, q) < 1e-2


def test_many_models_at_once():
    """Seeds are a leading axis of the parameters; shapes of one example do not change."""
    sizes = {"width": 4, "depth": 2, "latents": 3, "head_width": 5}
    alone = [filled(DeepEBLVM.vectors, IMAGE, seed=seed, **sizes) for seed in (0, 1)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    assert (together.v.shape, together.h.shape) == (IMAGE, (3,))
    energy = lambda model: model.log_joint(model.features(jnp.ones(IMAGE)), jnp.ones(3))
    got = quick(eqx.filter_vmap(energy))(together)
    np.testing.assert_allclose(got, [float(quick(energy)(model)) for model in alone], rtol=1e-5)


def test_what_cannot_work_says_so():
    with pytest.raises(ValueError, match="^shape: .*got \\(1, 28, 28\\)"):
        DeepEBLVM.images(KEY, (1, 28, 28), width=2, depth=1, latents=3)
    with refused("latents", got=0):
        DeepEBLVM.vectors(KEY, 2, width=2, depth=1, latents=0, head_width=2)
    with refused("latents", got=0):
        GaussianPosterior.convolutional(KEY, IMAGE, 0)
    with refused("head", got=5):
        DeepEBLVM(ResidualMLP(KEY, 2, width=2, depth=1, out=3), eqx.nn.Linear(5, 4, key=KEY))
    with refused("dtype", got="int32", kind=TypeError):
        Mixed(small(), jnp.int32)
    with refused("dtype", got="int32", kind=TypeError):
        MixedPosterior(ExactPosterior(), jnp.int32)
    model = small()
    v = jnp.ones((2, *IMAGE))
    q = Gaussian(jnp.zeros((2, 3)), jnp.zeros((2, 3)))
    with refused("Enumerated", got="Real(3)", kind=TypeError):
        Enumerated()(KEY, model, q, encode(model, v))
