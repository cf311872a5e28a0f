"""Recipes of GRBMs."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.app.recipes.examples import Examples
from vages.app.recipes.grbm_pictures import draw, sketch
from vages.app.recipes.recipe import Parts, Recipe
from vages.app.recipes.trained import Trained
from vages.app.settings import GRBMSettings, PointSettings
from vages.data import TOYS, Splits, load_freyface, load_splits, load_toy
from vages.data.arrays import ENDINGS, without_labels
from vages.data.freyface import SHAPE
from vages.data.own_images import check_image_shape
from vages.evaluation import Estimate, ais, log_density
from vages.files import declared_arrays
from vages.memory import check_memory
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.objectives import (
    DSM,
    KSD,
    NCE,
    VNCE,
    BiDSM,
    ContrastiveDivergence,
    Enumerated,
    Importance,
    Objective,
    Variational,
)
from vages.optimizers import adam, learning_rate, same_until
from vages.posteriors import BernoulliPosterior, ExactPosterior, Posterior
from vages.training import Learner, seed_keys


def objective(settings: GRBMSettings) -> Objective:
    """The objective of the method, with the paper's number of samples where none is given."""

    def samples(default: int) -> int:
        return default if settings.samples is None else settings.samples

    return {
        "vages-dsm": lambda: DSM(settings.sigma, Variational(samples(2)), settings.control_variate),
        "dsm": lambda: DSM(settings.sigma, Enumerated()),
        "bidsm": lambda: BiDSM(settings.sigma, settings.unrolled, samples(1)),
        "vages-ksd": lambda: KSD(settings.bandwidth, Variational(samples(2)), settings.control_variate),
        "ksd": lambda: KSD(settings.bandwidth, Enumerated()),
        "is-ksd": lambda: KSD(settings.bandwidth, Importance(samples(2))),
        "cd": lambda: ContrastiveDivergence(settings.chain_steps),
        "pcd": lambda: ContrastiveDivergence(settings.chain_steps, persistent=True),
        "nce": NCE,
        "vnce": lambda: VNCE(samples(5)),
    }[settings.method]()


VALIDATION = "validation_log_likelihood"


def recipe(settings: GRBMSettings) -> Recipe:
    """Return the recipe of a GRBM with these settings, which reports its test log-likelihood.

    If the latents can be enumerated, the exact test log-likelihood is logged during training, and the last model is
    kept. Otherwise each seed's best model by validation log-likelihood (AIS) is kept, as in the paper.
    """
    exact = settings.latents <= MAX_ENUMERATED
    return Recipe(
        data=settings.data,
        build=build,
        learner=learner,
        settings=settings,
        evaluate=_test if exact else _validate,
        maximize=None if exact else VALIDATION,
        test=_test,
        noise=settings.sigma if settings.method.endswith("dsm") else 0.0,
        parts=Parts(
            of=recipe,
            rank=1,
            load=load,
            named=(*TOYS, "freyface"),
            same_until=same_until(settings.decay, settings.steps, settings.warmup),
            activations=lambda shape: 4 * settings.seeds * settings.batch * settings.latents,
            draw=draw,
            sketch=sketch,
            summary=_summary,
            copies=settings.seeds if settings.data in TOYS else 1,
            stacked=True,
        ),
    )


def learner(settings: GRBMSettings) -> Learner:
    """Adam on the objective of the method."""
    rate = learning_rate(settings.learning_rate, decay=settings.decay, steps=settings.steps, warmup=settings.warmup)
    return Learner(
        objective(settings),
        adam(rate, clip=settings.clip),
        posterior_steps=settings.posterior_steps,
        ema=settings.ema,
    )


def build(key: PRNGKeyArray, settings: GRBMSettings, data: Examples) -> tuple[GRBM, Posterior]:
    """Return a new model and posterior. Methods that need no variational posterior get the exact one."""
    (size,) = data.shape
    for_model, for_posterior = jax.random.split(key)
    posterior = (
        BernoulliPosterior.linear(for_posterior, size, settings.latents)
        if settings.method in ("vages-dsm", "vages-ksd", "bidsm", "vnce")
        else ExactPosterior()
    )
    return GRBM.init(for_model, size, settings.latents), posterior


def load(settings: GRBMSettings, check: bool = True) -> Examples:
    """Load the data of all seeds: one draw of a toy per seed, along a leading axis; else one array for all seeds."""
    first = load_rows(settings, check)
    if settings.data not in TOYS:
        return first
    check_memory({"the data": settings.seeds * sum(part.nbytes for part in first.splits)}, "choose fewer seeds")
    draws = [first.splits, *(load_toy(settings.data, settings.seed + i) for i in range(1, settings.seeds))]
    return Examples(Splits(*(np.stack(parts) for parts in zip(*draws, strict=True))), per_seed=True)


def load_rows(settings: GRBMSettings | PointSettings, check: bool = True) -> Examples:
    """Load a toy with the settings' seed, Frey face, or a user's file, with examples as vectors.

    With `check`, arrays of four axes or more must be images.
    """
    if settings.data in TOYS:
        return Examples(load_toy(settings.data, settings.seed))
    if settings.data == "freyface":
        return Examples(load_freyface(), image=(1, *SHAPE))
    if Path(settings.data).suffix.lower() not in ENDINGS:
        names, there = ", ".join((*TOYS, "freyface")), Path(settings.data).exists()
        got = repr(settings.data) if there else f"no file or folder {settings.data!r}"
        hint = "choose one" if there else "check the path"
        raise ValueError(f"data: expected one of {names}, or a .npy, .npz or .csv file, got {got}; {hint}")
    if check and Path(settings.data).suffix.lower() != ".csv":
        for shape, _ in without_labels(declared_arrays(Path(settings.data))).values():
            if len(shape) > 3:  # rows of two axes may be anything, such as time series
                check_image_shape(settings.data, shape)
    dtype = np.float64 if settings.standardize else np.float32  # standardizing rounds them later
    splits = load_splits(Path(settings.data), settings.seed, dtype=dtype)
    rows = Splits(*(part.reshape(len(part), -1) for part in splits))
    return Examples(rows, image=_image_shape(splits.train))


def _image_shape(train: np.ndarray) -> tuple[int, int, int] | None:
    """Return (channels, height, width) if examples have the shape of images and values from 0 to 1, else None."""
    shape = train.shape[1:] if train.ndim == 4 else (1, *train.shape[1:])
    if len(shape) != 3 or shape[0] not in (1, 3) or train.min() < 0 or train.max() > 1:
        return None
    channels, height, width = shape
    return channels, height, width


def _test(key: Any, settings: GRBMSettings, models: GRBM, posteriors: Any, data: Examples) -> dict[str, Any]:
    return {"test_log_likelihood": _log_likelihood(settings, models, data, "test")}


def _validate(key: Any, settings: GRBMSettings, models: GRBM, posteriors: Any, data: Examples) -> dict[str, Any]:
    return {VALIDATION: _log_likelihood(settings, models, data, "validation")}


def _log_likelihood(settings: GRBMSettings, models: GRBM, data: Examples, split: str) -> Any:
    examples = getattr(data.splits, split)
    examples = jnp.asarray(examples if data.per_seed else examples[None])
    if settings.latents <= MAX_ENUMERATED:
        return exact_log_likelihood(models, examples) - data.log_volume
    return annealed_log_likelihood(settings, models, examples, split) - data.log_volume


@eqx.filter_jit
def exact_log_likelihood(models: GRBM, examples: Array) -> Array:
    """Mean exact log-likelihood of each seed's model. Examples have a leading axis of seeds, or of length 1."""

    def one(model, examples):
        return -jnp.mean(jax.vmap(model.free_energy)(examples)) - model.log_partition()

    with jax.default_matmul_precision("float32"):  # by default some GPUs round factors to fewer bits
        if len(examples) == 1:
            return jax.vmap(one, (0, None))(models, examples[0])
        return jax.vmap(one)(models, examples)


_log_density = eqx.filter_jit(log_density)


def annealed_log_likelihood(settings: GRBMSettings, models: GRBM, examples: Array, use: str) -> np.ndarray:
    """Mean log-likelihood of each seed's model, with log Z by AIS, one seed at a time."""
    values = []
    for i, key in enumerate(seed_keys([settings.seed + i for i in range(len(models.latent_bias))], use)):
        model = jax.tree.map(lambda x: x[i], models)  # noqa: B023
        log_z = ais(key, model, chains=settings.annealing, temperatures=settings.annealing)
        density = _log_density(None, model, None, examples[i % len(examples)])
        values.append(Estimate.of(density.value).mean - log_z.value)
    return np.array(values)


def _summary(trained: Trained) -> str:
    settings, likelihood = trained.settings, trained.tested["test_log_likelihood"]
    how = "exact" if settings.latents <= MAX_ENUMERATED else "AIS"
    told = f"test log-likelihood ({how}): {likelihood.mean():.4f}"
    if settings.seeds == 1:
        return f"{told} nats"
    return f"{told} ± {likelihood.std(ddof=1):.4f} nats (standard deviation of {len(likelihood)} seeds)"
