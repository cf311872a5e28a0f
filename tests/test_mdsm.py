"""Multiscale DSM of deep models: noise levels, gradients against plain autodiff, the corrector, the count of passes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from one_step import follow
from small_nets import IMAGE, KEY, filled, normal, quick
from truth import adam_start, adam_steps, bilinear, mean_differs, relative_error
from vages import estimators
from vages.models import EBM, GRBM, DeepEBLVM, LinearGaussian, Mixed
from vages.objectives import (
    DSM,
    KSD,
    MDSM,
    Batch,
    BiDSM,
    BiMDSM,
    Data,
    Enumerated,
    NoiseRange,
    Variational,
    perturb,
    vages_dsm,
)
from vages.posteriors import (
    BernoulliPosterior,
    Corrector,
    ExactPosterior,
    GaussianPosterior,
    MixedPosterior,
    fisher,
    infer,
    langevin_corrector,
)
from vages.training.learner import Learner

LEVELS = NoiseRange(0.2, 1.2, base=0.3)


def deep(**sizes):
    return filled(DeepEBLVM.images, IMAGE, **{"width": 2, "depth": 1, "latents": 3, "head_width": 5, **sizes})


def test_levels_are_an_even_grid_over_the_batch(precision):
    dtype, tolerance = precision
    np.testing.assert_allclose(NoiseRange(0.05, 1.2).levels(100, dtype), np.linspace(0.05, 1.2, 100), tolerance)
    geometric = NoiseRange(0.1, 3.0, "geometric").levels(100, dtype)
    np.testing.assert_allclose(geometric, 0.1 * 30 ** (np.arange(100) / 99), tolerance)
    assert geometric.dtype == dtype
    np.testing.assert_allclose(NoiseRange(0.5, 1.5).levels(1, dtype), [0.5])


@pytest.mark.parametrize("objective", [MDSM(NoiseRange(0.1, 3.0), Variational(2)), BiMDSM(NoiseRange(0.1, 3.0))])
def test_one_example_cannot_have_a_range_of_levels(objective):
    model = bilinear(LinearGaussian, KEY, 3, 2)
    with refused("batch", 1):
        Learner(objective, learning_rate=1e-3).init(KEY, model, GaussianPosterior.linear(KEY, 3, 2), 1)


@pytest.mark.parametrize("shape", [(4, 3), (4, 2, 3, 5)])
def test_a_batch_over_a_range_of_levels(float64, shape):
    w, epsilon = normal(0, *shape), normal(1, *shape)
    noised = quick(lambda w, e: perturb(w, e, LEVELS))(w, epsilon)
    for i, sigma in enumerate(np.linspace(0.2, 1.2, 4)):
        np.testing.assert_allclose(noised.v[i], w[i] + sigma * epsilon[i], rtol=1e-12)
        np.testing.assert_allclose(noised.target[i], -(noised.v[i] - w[i]) / 0.3**2, rtol=1e-12)
        np.testing.assert_allclose(noised.weight[i], 1 / sigma, rtol=1e-12)
        np.testing.assert_allclose(noised.loss_weight[i], 1 / sigma**2, rtol=1e-12)
    single = perturb(w, epsilon, 0.3)
    assert (single.weight, single.loss_weight) == (None, None)
    assert Data(w).weight is None
    same = perturb(w, epsilon, NoiseRange(0.3, 0.3, base=0.3))
    np.testing.assert_allclose(same.v, single.v, rtol=1e-12)
    np.testing.assert_allclose(same.target, single.target, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "samples", "corrector"),
    [(DeepEBLVM.vectors, 5, None), (DeepEBLVM.vectors, 2, Corrector(2, 0.1, 0.05))],
)
def test_the_gradient_is_that_of_whole_energies_without_features(float64, make, samples, corrector):
    """Eq. 20 without shortcuts: energies from v and h each time, reverse over reverse mode, covariances by hand."""
    model = filled(make, IMAGE, width=2, depth=1, latents=3, head_width=5)
    posterior = filled(GaussianPosterior.mlp, IMAGE, 3, width=3, depth=1)
    w = normal(0, 3, *IMAGE)
    objective = MDSM(LEVELS, Variational(samples, corrector))
    got = quick(follow)(objective, KEY, model, posterior, w)

    log_joint = lambda model, v, h: model.log_joint(model.features(v), h)
    score_of = jax.grad(log_joint, 1)

    def states(v, noise):
        """Samples of q, corrected one by one."""
        mean, log_std = jnp.split(posterior.network.network(v), 2)
        if corrector is None:
            return mean[None] + jnp.exp(log_std)[None] * noise
        start, kicks = noise

        def one(start, kicks):
            h = mean + jnp.exp(log_std) * start
            for kick in kicks:
                h = h + 0.5 * 0.1 * jax.grad(log_joint, 2)(model, v, h) + 0.05 * kick
            return h

        return jax.vmap(one)(start, kicks.swapaxes(0, 1))

    def one_example(v, target, sigma, for_score, for_gradient):
        score = jnp.mean(jax.lax.map(lambda h: score_of(model, v, h), states(v, for_score)), 0)
        z = (score - target) / sigma**2

        def terms(h):
            slope, expectation = jax.value_and_grad(lambda model: jnp.sum(z * score_of(model, v, h)))(model)
            return slope, expectation, jax.grad(log_joint)(model, v, h)

        slopes, expectations, gradients = jax.lax.map(terms, states(v, for_gradient))
        share = (slopes - jnp.mean(slopes)) / (samples - 1)
        total = lambda e, g: jnp.mean(e, 0) + jnp.tensordot(share, g, 1)
        return 0.5 * jnp.sum((score - target) ** 2) / sigma**2, jax.tree.map(total, expectations, gradients)

    for_points, for_loss = jax.random.split(KEY)
    for_q, for_corrector = jax.random.split(for_loss)
    epsilon = jax.random.normal(for_points, w.shape)
    latents = jnp.split(jax.random.normal(for_q, (3, 2 * samples, 3)), 2, axis=1)
    if corrector is not None:  # the noise of the corrector's steps, with examples as the first axis
        kicks = jnp.split(jax.random.normal(for_corrector, (2, 3, 2 * samples, 3)).swapaxes(0, 1), 2, axis=2)
        latents = list(zip(latents, kicks, strict=True))
    sigma = jnp.linspace(0.2, 1.2, 3)
    v = w + sigma.reshape(3, 1, 1, 1) * epsilon
    whole = quick(lambda *batch: jax.lax.map(lambda one: one_example(*one), batch))
    losses, gradients = whole(v, (w - v) / 0.3**2, sigma, *latents)
    assert relative_error(got.loss, jnp.mean(losses)) < 1e-10
    assert relative_error(got.gradient[0], jax.tree.map(lambda g: jnp.mean(g, 0), gradients)) < 1e-10


def test_the_gradient_is_the_terms_in_full_along_the_weighted_residual(float64):
    model = filled(DeepEBLVM.vectors, IMAGE, width=3, depth=2, latents=2, head_width=4)
    noised, h = perturb(normal(0, 3, *IMAGE), normal(1, 3, *IMAGE), LEVELS), normal(2, 3, 6, 2)

    @quick
    def both(model, h):
        score = estimators.vaes(model, noised.v, h[:, :3])
        z = (score - noised.target) / jnp.linspace(0.2, 1.2, 3).reshape(3, 1, 1, 1) ** 2
        terms = [term(model, noised.v, h[:, 3:]) for term in (estimators.expectation_term, estimators.covariance_term)]
        along_z = lambda e, c: jnp.tensordot(z, e + c, ((0, 1, 2, 3), (0, 1, 2, 3))) / 3
        return vages_dsm(model, noised, h)[1], jax.tree.map(along_z, *terms)

    got, expected = both(model, h)
    assert relative_error(got, expected) < 1e-10


@pytest.mark.parametrize("make", [EBM.vectors])
def test_exact_mdsm_of_a_plain_ebm(float64, make):
    model, w = filled(make, IMAGE, width=2, depth=1), normal(0, 3, *IMAGE)
    objective = MDSM(LEVELS, Enumerated())
    got = quick(follow)(objective, KEY, model, ExactPosterior(), w)
    sigma = jnp.linspace(0.2, 1.2, 3)
    v = w + sigma.reshape(3, 1, 1, 1) * jax.random.normal(jax.random.split(KEY)[0], w.shape)

    def loss(model):
        energy = lambda v: model.head(jax.nn.elu(model.network(v)))
        square = lambda v, w: jnp.sum((-jax.grad(energy)(v) + (v - w) / 0.3**2) ** 2)
        return 0.5 * jnp.mean(jax.vmap(square)(v, w) / sigma**2)

    value, gradient = quick(eqx.filter_value_and_grad(loss))(model)
    assert relative_error(got.loss, value) < 1e-12
    assert relative_error(got.gradient[0], gradient) < 1e-10


def test_bimdsm_is_the_gradient_through_a_hand_written_unroll(float64):
    """Two unrolled steps on the Fisher divergence, each example divided by its σ, after two steps that are kept."""
    model = filled(DeepEBLVM.vectors, 3, width=4, depth=2, latents=2, head_width=4)
    posterior = filled(GaussianPosterior.linear, 3, 2)
    w, rate, decay = normal(0, 4, 3), 0.01, (0.9, 0.95)
    objective = BiMDSM(LEVELS, unrolled=2)
    learner = Learner(objective, learning_rate=rate, posterior_steps=2, divergence=fisher)
    state = learner.init(KEY, model, posterior, batch=4)
    after, metrics = quick(learner.step)(KEY, state, Batch(w))
    for_posterior, for_points, for_loss = jax.random.split(KEY, 3)
    for_unrolled, for_loss = jax.random.split(for_loss)
    first, ahead_of_it = (
        [jax.random.normal(key, (4, 1, 2)) for key in jax.random.split(key, 2)] for key in (for_posterior, for_unrolled)
    )
    epsilon, last = jax.random.normal(for_points, w.shape), jax.random.normal(for_loss, (4, 1, 2))
    sigma = jnp.linspace(0.2, 1.2, 4)
    v = w + sigma[:, None] * epsilon
    target = -(v - w) / 0.3**2

    def moments_of_q(phi, v):
        return phi[0] @ v + phi[1], phi[2] @ v + phi[3]

    def log_q(phi, v, h):
        mean, log_std = moments_of_q(phi, v)
        return -jnp.sum(0.5 * ((h - mean) * jnp.exp(-log_std)) ** 2 + log_std)

    def lower(phi, model, noise):
        def one(v, noise):
            mean, log_std = moments_of_q(phi, v)
            h = mean + jnp.exp(log_std) * noise
            gap = jax.grad(lambda h: model.log_joint(model.features(v), h) - log_q(phi, v, h))(h)
            return 0.5 * jnp.sum(gap**2)

        return jnp.mean(jax.vmap(one)(v, noise[:, 0]) / sigma)

    def descend(start, model, noises):
        return adam_steps(lambda phi, noise: jax.grad(lower)(phi, model, noise), start, noises, rate, decay)

    heads = posterior.network
    start = adam_start([heads.mean.weight, heads.mean.bias, heads.log_std.weight, heads.log_std.bias])

    @quick
    def by_hand(model):
        kept = descend(start, model, first)

        def upper(other):
            ahead = descend(kept, other, ahead_of_it).at

            def one(v, target, noise):
                mean, log_std = moments_of_q(ahead, v)
                h = mean + jnp.exp(log_std) * noise
                score = jax.grad(lambda v: other.log_joint(other.features(v), h) - log_q(ahead, v, h))(v)
                return 0.5 * jnp.sum((score - target) ** 2)

            return jnp.mean(jax.vmap(one)(v, target, last[:, 0]) / sigma**2)

        return kept.at, eqx.filter_value_and_grad(upper)(model)

    phi, (value, gradient) = by_hand(model)
    assert relative_error(metrics["loss"], value) < 1e-9
    assert relative_error(after.posterior.network.mean.weight, phi[0]) < 1e-9  # the unrolled steps are not kept
    first_moment = after.optimizer[0].mu[0]  # Adam after one step: (1 − b1) times the gradient
    assert relative_error(jax.tree.map(lambda m: m / (1 - decay[0]), first_moment), gradient) < 1e-8


def gaussian_start():
    """A linear-Gaussian model with p(h | v) = N(m, I), and a q far from it."""
    model = bilinear(LinearGaussian, KEY, 3, 2)
    v = normal(0, 1, 3)
    features = jax.vmap(model.features)(v)
    posterior = GaussianPosterior(lambda v: (jnp.asarray([2.0, -1.0]), jnp.asarray([0.7, -0.9])))
    return model, v, features, infer(model, posterior, v), infer(model, ExactPosterior(), v)


@pytest.mark.parametrize("noise_std", [None, 1e-4])
def test_corrected_samples_are_nearer_the_posterior(noise_std):
    """Moments of C steps of the chain in closed form (false-alarm rate 1e-6 each); the Fisher divergence decreases."""
    model, v, _, q, p = gaussian_start()
    source = Variational(20_000, Corrector(4, 0.4, noise_std))
    h = quick(lambda key: source(key, model, q, estimators.encode(model, v))[0].h[0])(KEY)
    shrink, kick = 1 - 0.4 / 2, 0.4 if noise_std is None else noise_std**2
    mean = p.mean[0] + shrink**4 * (q.mean[0] - p.mean[0])
    variance = shrink**8 * q.variance[0] + kick * sum(shrink ** (2 * i) for i in range(4))
    assert not mean_differs(h, mean)
    assert not mean_differs((h - mean[None]) ** 2, variance)
    fisher_gap = lambda mean, variance: float(jnp.sum((mean - p.mean[0]) ** 2 + variance - 2 + 1 / variance)) / 2
    if noise_std is None:
        assert fisher_gap(mean, variance) < 0.3 * fisher_gap(q.mean[0], q.variance[0])
    assert float(jnp.sum((mean - p.mean[0]) ** 2)) < 0.2 * float(jnp.sum((q.mean[0] - p.mean[0]) ** 2))


def test_the_corrector_by_hand():
    model, _, features, _, _ = gaussian_start()
    h, corrector = normal(1, 1, 5, 2), Corrector(7, 0.1)
    got = corrector(KEY, model, features, h)
    np.testing.assert_array_equal(langevin_corrector(KEY, model, features, h, steps=7, step_size=0.1), got)
    expected, mean = h, model.posterior(jax.tree.map(lambda x: x[0], features)).mean
    for kick in jax.random.normal(KEY, (7, 1, 5, 2)):
        expected = expected + 0.05 * (mean[None, None] - expected) + 0.1**0.5 * kick
    assert relative_error(got, expected) < 1e-5
    np.testing.assert_array_equal(Corrector(0, 0.1)(KEY, model, features, h), h)
    slope = jax.grad(lambda h: jnp.sum(corrector(KEY, model, features, h)))(h)
    np.testing.assert_array_equal(slope, 0)


def passes(model, posterior, objective, posterior_steps):
    learner = Learner(objective, learning_rate=1e-3, posterior_steps=posterior_steps, divergence=fisher)
    state = learner.init(KEY, model, posterior, batch=4)
    params, static = eqx.partition(state, eqx.is_array)
    w = jnp.zeros((4, *model.v.shape))

    def run(params, w, key):
        after, metrics = learner.step(key, eqx.combine(params, static), Batch(w))
        return eqx.filter(after, eqx.is_array), metrics

    return len(list(equations(jax.make_jaxpr(run)(params, w, KEY).jaxpr, "conv_general_dilated")))


def equations(program, primitive):
    """All equations of a program with this primitive, including inner functions; those in a loop count once."""
    for equation in program.eqns:
        if equation.primitive.name == primitive:
            yield equation
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from equations(getattr(inner, "jaxpr", inner), primitive)


def test_the_network_is_passed_a_fixed_number_of_times():
    """For any L, K and C: forward, pullback, push-forward (with its own primal), and a backward pass of that.

    The last one has two gradients with respect to the weight of each convolution (from the primal and from the tangent)
    and two with respect to its input. The first layer is a matrix product, and is not counted.
    """
    layers = 9
    posterior = filled(GaussianPosterior.mlp, IMAGE, 3, width=2, depth=1)
    got = {
        passes(deep(), posterior, MDSM(LEVELS, Variational(samples, corrector)), steps)
        for samples, steps, corrector in [(2, 1, None), (5, 3, Corrector(6, 0.1))]
    }
    got |= {passes(filled(EBM.images, IMAGE, width=2, depth=1), ExactPosterior(), MDSM(LEVELS, Enumerated()), 5)}
    assert got == {layers + layers + 2 * layers + 4 * layers}


def test_an_iteration_in_bfloat16_leaves_everything_in_float32():
    """Only dtypes are computed. All convolutions of the model and of the posterior are in bfloat16."""
    model = Mixed(deep(), jnp.bfloat16)
    posterior = MixedPosterior(filled(GaussianPosterior.convolutional, IMAGE, 3, width=2), jnp.bfloat16)
    objective = MDSM(LEVELS, Variational(2, Corrector(2, 0.01, 1e-4)))
    w = normal(0, 4, *IMAGE)

    def run(w, key):
        return follow(objective, key, model, posterior, w)

    program, shapes = jax.make_jaxpr(run, return_shape=True)(w, KEY)
    assert jax.tree.structure(shapes.gradient[0]) == jax.tree.structure(model)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(shapes)} == {"float32"}
    convolutions = equations(program.jaxpr, "conv_general_dilated")
    assert {e.outvars[0].aval.dtype.name for e in convolutions} == {"bfloat16"}
    assert len(list(equations(program.jaxpr, "scan"))) == 1  # one chain corrects the samples for both VaES and VaGES


@pytest.mark.parametrize("objective", [DSM, KSD])
def test_the_control_variate_is_refused_with_a_corrector(objective):
    with refused("control_variate", got="corrected"):
        objective(0.3, Variational(2, Corrector(1, 0.1)), control_variate=True)


def test_what_cannot_work_says_so():
    for make, sigma in ((lambda: DSM(0.0, Enumerated()), 0.0), (lambda: BiDSM(-1.0), -1.0)):
        with refused("sigma", got=sigma):
            make()
    with refused("begin", got=0.0):
        NoiseRange(0.0, 1.0)
    with refused("base", got=-0.1):
        NoiseRange(0.1, 1.0, base=-0.1)
    with refused("steps", got=-1):
        Corrector(-1, 0.1)
    with refused("step_size", got=0.0):
        Corrector(1, 0.0)
    with refused("noise_std", got=-1.0):
        Corrector(1, 0.1, -1.0)
    grbm, v = filled(GRBM.init, 3, 2), normal(0, 1, 3)
    q = infer(grbm, filled(BernoulliPosterior.linear, 3, 2), v)
    source = Variational(2, Corrector(1, 0.1))
    with refused("corrector", got="Binary(2)", kind=TypeError):
        source(KEY, grbm, q, estimators.encode(grbm, v))
