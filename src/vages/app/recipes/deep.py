"""Recipes of the paper's deep models of images."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from vages.app.recipes.chains import chains_of
from vages.app.recipes.deep_pictures import draw
from vages.app.recipes.examples import Examples
from vages.app.recipes.rates import rates, same_until
from vages.app.recipes.recipe import Parts, Recipe
from vages.app.recipes.selection import FIDSelection
from vages.app.recipes.trained import last_loss
from vages.app.settings import DeepSettings
from vages.data import IMAGE_SETS, Batches, load_images
from vages.models import EBLVM, EBM, DeepEBLVM
from vages.nets.network import check_image_shape
from vages.objectives import MDSM, BiMDSM, Enumerated, NoiseRange, Objective, Variational
from vages.optimizers import adam
from vages.posteriors import Corrector, ExactPosterior, GaussianPosterior, Posterior, fisher, kl
from vages.samplers import Annealed, Schedule
from vages.training import Learner

CHUNK = 100  # iterations in a chunk, between two log records


def recipe(settings: DeepSettings) -> Recipe:
    """Return the recipe of a deep model. With `fid_every`, the weights with the best FID-1k are kept."""
    selection = FIDSelection(chains, gray="replicate") if settings.fid_every else None
    return Recipe(
        data=settings.data,
        build=build,
        learner=learner,
        settings=settings,
        sampler=sampler,
        evaluate=selection,
        minimize=None if selection is None else selection.name,
        noise=settings.sigma_base,
        parts=Parts(
            of=recipe,
            rank=3,
            load=load,
            named=tuple(IMAGE_SETS),
            same_until=same_until(settings),
            activations=partial(_activations, settings),
            draw=draw,
            summary=lambda trained: last_loss(trained.fitted),
            check=(lambda: None) if selection is None else selection.check,
            copies=2 if settings.flips else 1,
            chunk=CHUNK,
            free=frozenset({"sampling", "top_temperature"}),
            evaluate_every=settings.fid_every or None,
        ),
    )


def objective(settings: DeepSettings) -> Objective:
    """The objective of the method."""
    levels = NoiseRange(settings.sigma_begin, settings.sigma_end, settings.spacing, settings.sigma_base)
    if settings.method == "bimdsm":
        return BiMDSM(levels, settings.unrolled, 1)
    if settings.method == "mdsm":
        return MDSM(levels, Enumerated())
    corrector = Corrector(settings.corrector_steps, settings.corrector_size, settings.corrector_noise)
    return MDSM(levels, Variational(settings.samples, corrector if settings.corrector_steps else None))


def learner(settings: DeepSettings) -> Learner:
    """Adam on the objective of the method, for model and posterior."""
    peak = settings.learning_rate
    posterior_peak = peak if settings.posterior_learning_rate is None else settings.posterior_learning_rate
    both = rates(settings, peak, posterior_peak, final=settings.final_learning_rate)
    return Learner(
        objective(settings),
        *(adam(rate, clip=settings.clip) for rate in both),
        posterior_steps=settings.posterior_steps,
        divergence={"kl": kl, "fisher": fisher}[settings.divergence],
        ema=settings.ema,
        compute_dtype=None if settings.precision == "float32" else jnp.dtype(settings.precision),
    )


def sampler(settings: DeepSettings) -> Annealed:
    """Annealed Langevin dynamics with a final denoising step from the level `sigma_base` of the model."""
    schedule = replace(Schedule(), denoise=settings.sigma_base, top_temperature=settings.top_temperature)
    return Annealed(schedule.scaled(settings.sampling))


def build(key: PRNGKeyArray, settings: DeepSettings, data: Examples) -> tuple[DeepEBLVM | EBM, Posterior]:
    """Return a new model and posterior for images of the data's shape."""
    channels, height, width = shape = data.shape
    if settings.network == "resnet":
        check_image_shape(shape)
    shape, layers = (channels, height, width), {"width": settings.width, "depth": settings.depth}
    for_model, for_posterior = jax.random.split(key)
    if settings.method == "mdsm":
        make = EBM.images if settings.network == "resnet" else EBM.vectors
        return make(for_model, shape, **layers), ExactPosterior()
    coupled = {"latents": settings.latents, "head_width": settings.head_width}
    if settings.network == "resnet":
        model = DeepEBLVM.images(for_model, shape, **layers, **coupled)
        return model, GaussianPosterior.convolutional(for_posterior, shape, settings.latents)
    coupled["head_width"] = settings.width if settings.head_width is None else settings.head_width
    model = DeepEBLVM.vectors(for_model, shape, **layers, **coupled)
    return model, GaussianPosterior.mlp(for_posterior, shape, settings.latents, width=settings.width, depth=2)


def load(settings: DeepSettings, check: bool = True) -> Examples:
    """Load the images. With flips, mirrored images are trained on too. With `check`, check their shape and number."""
    images = load_images(settings.data, seed=settings.seed, check=check)
    train = images.splits.train
    if check:
        if settings.network == "resnet":
            check_image_shape(train.shape[1:])
        Batches(len(train), settings.batch, settings.seed)
    return Examples(images.splits, images.labels, parts=(train, train[..., ::-1]) if settings.flips else ())


def chains(settings: DeepSettings, model: EBLVM) -> tuple[EBLVM, Schedule]:
    """The model and the schedule of its chains."""
    return chains_of(recipe(settings), model)


def _activations(settings: DeepSettings, shape: tuple[int, ...]) -> int:
    _, height, width = shape
    layer = settings.width * (height * width if settings.network == "resnet" else 1)
    return settings.batch * settings.depth * layer * (4 if settings.precision == "float32" else 2)
