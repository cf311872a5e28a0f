"""Deep models of images: the learner, model and data that their settings name."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.settings import DeepSettings
from vages.data import Batches, Images, load_images
from vages.models import EBM, DeepEBLVM
from vages.nets.network import check_image_shape
from vages.objectives import MDSM, BiMDSM, Enumerated, NoiseRange, Objective, Variational
from vages.optimizers import adam, learning_rate
from vages.posteriors import Corrector, ExactPosterior, GaussianPosterior, Posterior, fisher, kl
from vages.training import Job, init_seeds, one_seed
from vages.training.learner import Learner, LearnerState


def objective_of_deep(recipe: DeepSettings) -> Objective:
    """The objective of the recipe's method."""
    if recipe.method == "bimdsm":
        return BiMDSM(_levels(recipe), recipe.unrolled, 1)
    if recipe.method == "mdsm":
        return MDSM(_levels(recipe), Enumerated())
    corrector = Corrector(recipe.corrector_steps, recipe.corrector_size, recipe.corrector_noise)
    return MDSM(_levels(recipe), Variational(recipe.samples, corrector if recipe.corrector_steps else None))


def _levels(recipe: DeepSettings) -> NoiseRange:
    return NoiseRange(recipe.sigma_begin, recipe.sigma_end, recipe.spacing, recipe.sigma_base)


def learner_of_deep(recipe: DeepSettings) -> Learner:
    """The recipe's learner."""
    peak = recipe.learning_rate
    posterior_peak = peak if recipe.posterior_learning_rate is None else recipe.posterior_learning_rate
    how = {"steps": recipe.steps, "warmup": min(recipe.warmup, recipe.steps // 10), "final": recipe.final_learning_rate}
    optimizers = (
        adam(learning_rate(peak, decay=recipe.decay, **how), clip=recipe.clip) for peak in (peak, posterior_peak)
    )
    return Learner(
        objective_of_deep(recipe),
        *optimizers,
        posterior_steps=recipe.posterior_steps,
        divergence={"kl": kl, "fisher": fisher}[recipe.divergence],
        ema=recipe.ema,
        compute_dtype=None if recipe.precision == "float32" else jnp.dtype(recipe.precision),
    )


def parts_of_deep(
    recipe: DeepSettings, shape: tuple[int, int, int]
) -> Callable[[PRNGKeyArray], tuple[DeepEBLVM | EBM, Posterior]]:
    """A fresh model and posterior for a key, for images of this shape."""
    layers = {"width": recipe.width, "depth": recipe.depth}

    def make(key: PRNGKeyArray) -> tuple[DeepEBLVM | EBM, Posterior]:
        for_model, for_posterior = jax.random.split(key)
        if recipe.method == "mdsm":
            build = EBM.images if recipe.network == "resnet" else EBM.vectors
            return build(for_model, shape, **layers), ExactPosterior()
        coupled = {"latents": recipe.latents, "head_width": recipe.head_width}
        if recipe.network == "resnet":
            model = DeepEBLVM.images(for_model, shape, **layers, **coupled)
            return model, GaussianPosterior.convolutional(for_posterior, shape, recipe.latents)
        coupled["head_width"] = recipe.width if recipe.head_width is None else recipe.head_width
        model = DeepEBLVM.vectors(for_model, shape, **layers, **coupled)
        return model, GaussianPosterior.mlp(for_posterior, shape, recipe.latents, width=recipe.width, depth=2)

    return make


def load_deep(recipe: DeepSettings) -> Images:
    """The recipe's images, checked against its network."""
    images = load_images(recipe.data, seed=recipe.seed)
    if recipe.network == "resnet":
        check_image_shape(images.splits.train.shape[1:])
    Batches(len(images.splits.train), recipe.batch, recipe.seed)
    return images


def training_images(recipe: DeepSettings, images: Images) -> np.ndarray:
    """The rows that are trained on."""
    first, *others = training_parts(recipe, images)
    return np.concatenate([first, *others]) if others else first


def training_parts(recipe: DeepSettings, images: Images) -> tuple[np.ndarray, ...]:
    """The same rows as views that need no memory: the images, and with flips their mirror images."""
    train = images.splits.train
    return (train, train[..., ::-1]) if recipe.flips else (train,)


def start_deep(recipe: DeepSettings, shape: tuple[int, ...]) -> tuple[Learner, LearnerState]:
    """The learner, and its state before the first iteration, for images (channels, height, width)."""
    learner = learner_of_deep(recipe)
    channels, height, width = shape
    seeds = init_seeds(learner, (recipe.seed,), parts_of_deep(recipe, (channels, height, width)), recipe.batch)
    return learner, one_seed(seeds)


def job_of_deep(recipe: DeepSettings, shape: tuple[int, int, int], rows: int = 1000) -> Job:
    """The recipe ready to be timed, on random images."""
    learner, state = start_deep(recipe, shape)
    return Job(learner, state, jax.random.uniform(jax.random.key(0), (rows, *shape)), recipe.batch)
