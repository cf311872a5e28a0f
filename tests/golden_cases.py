"""The cases of golden.py for the API of this checkout.

Edit this file together with the API. Do not change settings, seeds or shapes: earlier commits would have nothing to be
compared with. It imports no other file of the tests.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vages import (
    DSM,
    GRBM,
    KSD,
    MDSM,
    BernoulliPosterior,
    Corrector,
    DeepEBLVM,
    EnergyModel,
    ExactPosterior,
    GaussianPosterior,
    Importance,
    LatentCritic,
    Learner,
    LinearGaussian,
    Mixed,
    NoiseRange,
    Real,
    Schedule,
    Variational,
    VariationalScore,
    adam,
    ais,
    fisher,
    fisher_divergence,
    fit,
    gradient_estimate,
    infer,
    ksd_test,
    learned_stein_test,
    log_likelihood,
    posterior_gap,
    reverse_ais,
    score_matching_loss,
    sliced_score_matching_loss,
    vaes,
    vaes_cv,
)
from vages.app.recipes import as_recipe, train
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS, DeepMethod, DeepSettings, GRBMSettings, Method
from vages.data import TOYS, Batches, load_digits, load_toy
from vages.posteriors import posterior_means
from vages.samplers import gibbs_sample, sample_joint, sample_unconditional, sample_v
from vages.training import make_seeds

Arrays = dict[str, np.ndarray]

STEPS = 30
GRBM_RECIPE = replace(CHECKERBOARD, steps=STEPS, batch=20, learning_rate=1e-2, sigma=0.2, bandwidth=0.5, unrolled=2)
DEEP_RECIPE = replace(
    DEEP_PRESETS["digits-paper"],
    width=16,
    depth=2,
    latents=4,
    head_width=16,
    batch=20,
    steps=STEPS,
    learning_rate=1e-3,
    ema=0.9,
    posterior_steps=2,
    unrolled=2,
)
SCHEDULE = Schedule(hot_steps=10, cooling_steps=30, freezing_steps=10, top_temperature=10.0)


def arrays_of(tree: Any) -> Arrays:
    """Every array and number of a tree under its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in leaves
        if eqx.is_array_like(leaf)
    }


def of_training(fitted: Any, **more: Any) -> Arrays:
    """Metrics and evaluations of each iteration, then the final state."""
    names = list(dict.fromkeys(name for row in fitted.history for name in row if name not in ("step", "seconds")))
    metrics = {name: fitted.curve(name)[1] for name in names}
    return arrays_of({"metrics": metrics}) | arrays_of({"state": fitted.state, "best": fitted.best, **more})


def train_grbm(recipe: GRBMSettings) -> Arrays:
    trained = train(as_recipe(recipe), chunk=1)
    return of_training(trained.fitted, test_log_likelihood=trained.tested["test_log_likelihood"])


def train_images(recipe: DeepSettings) -> Arrays:
    return of_training(train(as_recipe(recipe), chunk=1).fitted)


def train_in_chunks() -> Arrays:
    """Metrics are means over chunks of 15 iterations."""
    return of_training(train(as_recipe(GRBM_RECIPE), chunk=15).fitted)


def fit_model(
    objective: Any, make: Callable[[Any], tuple[Any, Any]], dimension: int, clip: float | None = None, **settings: Any
) -> Arrays:
    """Two seeds that share the data."""
    learner = Learner(objective, adam(1e-2, clip=clip), posterior_steps=2, **settings)
    data = jnp.asarray(np.random.default_rng(0).normal(0.5, 0.7, (200, dimension)), jnp.float32)
    start = make_seeds((3, 4), make)
    return of_training(fit(*start, data, learner, steps=STEPS, batch=20, chunk=1))


def energy_model() -> EnergyModel:
    """A model with continuous h, and features that are not v."""
    rng = np.random.default_rng(1)
    params = {
        "inner": jnp.asarray(rng.normal(size=(5, 3)), jnp.float32),
        "outer": jnp.asarray(rng.normal(size=(2, 5)), jnp.float32),
    }

    def features(params, v):
        return jnp.tanh(params["inner"] @ v), jnp.sum(v**2)

    def energy(params, features, h):
        hidden, square = features
        return 0.5 * square + 0.5 * jnp.sum(h**2) + 0.1 * jnp.sum(h**4) - jnp.dot(h, params["outer"] @ hidden)

    return EnergyModel(energy, params, Real(3), Real(2), features)


def energy_parts(key: Any) -> tuple[EnergyModel, GaussianPosterior]:
    return energy_model(), GaussianPosterior.linear(key, 3, 2)


def linear_parts(key: Any) -> tuple[LinearGaussian, ExactPosterior]:
    return LinearGaussian.init(key, 3, 2), ExactPosterior()


def grbm_parts(key: Any) -> tuple[GRBM, ExactPosterior]:
    return GRBM.init(key, 3, 4), ExactPosterior()


def grbm(latents: int = 4) -> tuple[GRBM, BernoulliPosterior, Any]:
    """A model, a posterior and examples."""
    rng = np.random.default_rng(2)
    parameters = (rng.normal(0, s, size) for s, size in ((0.7, (3, latents)), (0.5, 3), (0.5, latents), (0.2, 3)))
    model = GRBM(*(jnp.asarray(x, jnp.float32) for x in parameters))
    posterior = BernoulliPosterior.linear(jax.random.key(1), 3, latents)
    return model, posterior, jnp.asarray(rng.normal(size=(120, 3)), jnp.float32)


def deep() -> tuple[DeepEBLVM, Any]:
    """A model of images, and images."""
    model = DeepEBLVM.vectors(jax.random.key(0), (1, 8, 8), width=16, depth=2, latents=4, head_width=16)
    return model, jnp.asarray(load_digits().splits.train[:10])


def resnets() -> Arrays:
    """Convolutional networks as they are initialized, and their outputs; training them takes a minute to compile."""
    images, shape = jnp.asarray(load_digits().splits.train[:4]), (1, 8, 8)
    model = DeepEBLVM.images(jax.random.key(0), shape, width=4, depth=1, latents=4)
    posterior = GaussianPosterior.convolutional(jax.random.key(1), shape, 4, width=4)
    narrow = Mixed(model, "bfloat16")
    outputs = eqx.filter_jit(lambda model, v: jax.vmap(model.features)(v))
    return arrays_of(
        {
            "model": model,
            "posterior": posterior,
            "features": outputs(model, images),
            "bfloat16": outputs(narrow, images),
            "means": posterior_means(model, posterior, np.asarray(images)),
        }
    )


def estimators() -> Arrays:
    model, posterior, v = grbm()
    h = infer(model, posterior, v).sample(jax.random.key(0), 3)
    log_q = lambda v, h: posterior(model, model.features(v), v).log_prob(h)
    values = {
        "vaes": eqx.filter_jit(vaes)(model, v, h),
        "vages": eqx.filter_jit(gradient_estimate)(model, v, h, v),
        "vaes_cv": eqx.filter_jit(lambda model, v, h: vaes_cv(model, log_q, v, h))(model, v, h),
    }
    return arrays_of(values)


def langevin_given_h() -> Arrays:
    model, images = deep()
    h = jax.random.normal(jax.random.key(1), (10, 4))
    mask = np.arange(64).reshape(1, 8, 8) < 32
    return arrays_of(
        {
            "plain": sample_v(jax.random.key(2), model, h, SCHEDULE, record=4, batch=6, chunk=20),
            "shared": sample_v(jax.random.key(2), model, h, SCHEDULE, shared_noise=True),
            "held": sample_v(jax.random.key(2), model, h, SCHEDULE, mask=mask, known=images),
        }
    )


def langevin_joint() -> Arrays:
    model, images = deep()
    posterior = GaussianPosterior.mlp(jax.random.key(3), (1, 8, 8), 4, width=16, depth=2)
    means = posterior_means(model, posterior, np.asarray(images))
    return arrays_of(
        {
            "joint": sample_joint(jax.random.key(2), model, 10, SCHEDULE, record=4),
            "from_means": sample_unconditional(jax.random.key(4), model, 10, SCHEDULE, latents=means),
        }
    )


def likelihood() -> Arrays:
    model, _, v = grbm()
    many, _, _ = grbm(24)
    return arrays_of(
        {
            "ais": ais(jax.random.key(0), many, chains=20, temperatures=30),
            "reverse_ais": reverse_ais(jax.random.key(0), model, chains=20, temperatures=30),
            "exact": log_likelihood(jax.random.key(0), model, None, v)[1:3],
        }
    )


def critic_divergence(score: Callable[[GRBM, BernoulliPosterior], Any], latent: bool) -> Arrays:
    model, posterior, v = grbm()
    critic = LatentCritic(jax.random.key(5), 3, 4) if latent else None
    settings = {"steps": STEPS, "batch": 20, "learning_rate": 1e-2, "posterior_steps": 2, "checks": 3}
    return arrays_of(
        fisher_divergence(
            jax.random.key(0), score(model, posterior), v[:80], v[80:100], v[100:], critic=critic, **settings
        )
    )


def gaps() -> Arrays:
    model, posterior, v = grbm()
    energy, gaussian = energy_parts(jax.random.key(6))
    corrector = Corrector(5, 0.05)
    return arrays_of(
        {
            "grbm": posterior_gap(jax.random.key(0), model, posterior, v, samples=8),
            "energy": posterior_gap(jax.random.key(0), energy, gaussian, v, samples=8, corrector=corrector),
        }
    )


def stein() -> Arrays:
    model, posterior, v = grbm()
    score = VariationalScore(model, posterior, samples=2)
    tests = {
        "ksd": ksd_test(jax.random.key(0), score, v, replicates=50),
        "learned": learned_stein_test(jax.random.key(0), score, v, steps=STEPS, batch=20, checks=3),
        "score_matching": score_matching_loss(model.score, v),
        "sliced": sliced_score_matching_loss(jax.random.key(0), model.score, v),
    }
    return arrays_of(tests)


def data() -> Arrays:
    toys = {name: load_toy(name, 5, 50, 20, 10) for name in TOYS if name != "board"}  # which 0.1 has not
    return arrays_of({"toys": toys, "digits": load_digits(), "order": Batches(50, 20, 7).indices(1, 9)})


FEATURES_OFF = {"corrector_steps": 0, "ema": None, "divergence": "kl", "decay": "constant", "warmup": 0}

CASES: dict[str, Callable[[], Arrays]] = {
    "data": data,
    "estimators": estimators,
    "resnets": resnets,
    **{
        f"grbm-{method}": lambda method=method: train_grbm(replace(GRBM_RECIPE, method=method))
        for method in get_args(Method)
    },
    "grbm-vages-dsm-cv": lambda: train_grbm(replace(GRBM_RECIPE, control_variate=True, samples=4)),
    "grbm-vages-ksd-cv": lambda: train_grbm(replace(GRBM_RECIPE, method="vages-ksd", control_variate=True)),
    "grbm-vages-dsm-chunks": train_in_chunks,
    "grbm-vages-dsm-seeds": lambda: train_grbm(replace(GRBM_RECIPE, seed=5, seeds=3)),
    "grbm-vages-dsm-schedule": lambda: train_grbm(replace(GRBM_RECIPE, warmup=5, decay="cosine", clip=0.5, ema=0.9)),
    "grbm-vages-dsm-selected": lambda: train_grbm(replace(GRBM_RECIPE, latents=24, annealing=10, evaluate_every=10)),
    "grbm-pcd-3": lambda: train_grbm(replace(GRBM_RECIPE, method="pcd", chain_steps=3)),
    "grbm-importance-dsm": lambda: fit_model(DSM(0.2, Importance(3)), grbm_parts, 3),
    "linear-gaussian-dsm": lambda: fit_model(DSM(0.2, Variational(2)), linear_parts, 3),
    "energy-dsm-fisher": lambda: fit_model(DSM(0.2, Variational(2)), energy_parts, 3, divergence=fisher),
    "energy-mdsm-corrector": lambda: fit_model(
        MDSM(NoiseRange(0.1, 1.0), Variational(3, Corrector(3, 0.01))), energy_parts, 3, clip=1.0
    ),
    "energy-ksd-bfloat16": lambda: fit_model(
        KSD(0.5, Variational(2)), energy_parts, 3, compute_dtype=jnp.dtype("bfloat16"), ema=0.9
    ),
    **{
        f"deep-{method}": lambda method=method: train_images(replace(DEEP_RECIPE, method=method))
        for method in get_args(DeepMethod)
    },
    "deep-vages-mdsm-plain": lambda: train_images(replace(DEEP_RECIPE, **FEATURES_OFF)),
    "deep-vages-mdsm-flips": lambda: train_images(replace(DEEP_RECIPE, flips=True, clip=1.0, spacing="linear")),
    "deep-mdsm-bfloat16": lambda: train_images(replace(DEEP_RECIPE, method="mdsm", precision="bfloat16")),
    "gibbs": lambda: arrays_of(gibbs_sample(jax.random.key(0), grbm()[0], 20, steps=STEPS)),
    "langevin-given-h": langevin_given_h,
    "langevin-joint": langevin_joint,
    "likelihood": likelihood,
    "critic": lambda: critic_divergence(lambda model, posterior: model.score, latent=False),
    "critic-variational": lambda: critic_divergence(VariationalScore, latent=True),
    "posterior-gap": gaps,
    "stein-tests": stein,
}
