"""Recipes of the noise-conditional EBLVM of images."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.recipes.examples import Examples
from vages.app.recipes.images_pictures import draw, sketch
from vages.app.recipes.rates import rates, same_until
from vages.app.recipes.recipe import Parts, Recipe
from vages.app.recipes.trained import last_loss
from vages.app.settings import IMAGE_PRESETS, ImageSettings
from vages.data import IMAGE_SETS, Batches, Splits, load_images
from vages.data.own_images import advice_on_labels, has_stray
from vages.domains import Empty, Real
from vages.models import NoiseConditionalEBLVM, measure_sigma_data
from vages.objectives import Enumerated, NoiseConditionalDSM, Variational
from vages.optimizers import adam, normalize_weights, normalized_adam
from vages.posteriors import ExactPosterior, FeaturePosterior, Posterior
from vages.samplers import Heun
from vages.training import Learner

CENTER = 0.5  # of images in [0, 1]
CHUNK = 20  # iterations in a chunk, between two log records
_WIDEST = 256  # most channels of a unet's lower levels
_LOWEST = 8  # pixels, the side of a unet's lowest level
_RATES = {"unet": 6e-3, "mixer": 2e-2, "mlp": 1e-3}  # peaks of the learning rate
# Mean and deviation of ln(σ / σ_d). A mixer underfits at two to five times σ_d, which decides where things are.
_LEVELS = {"mixer": (0.3, 1.4)}


def recipe(settings: ImageSettings) -> Recipe:
    """Return the recipe of a noise-conditional model with these settings."""
    return Recipe(
        data=settings.data,
        build=build,
        learner=learner,
        settings=settings,
        sampler=lambda settings: Heun(steps=settings.sampling_steps),
        noise=0.1,
        parts=Parts(
            of=recipe,
            rank=3,
            load=load,
            named=tuple(IMAGE_SETS),
            same_until=same_until(settings),
            activations=partial(_activations, settings),
            draw=draw,
            sketch=sketch,
            summary=lambda trained: last_loss(trained.fitted),
            copies=2 if settings.flips else 1,
            chunk=CHUNK,
            free=frozenset({"sampling_steps"}),
            settle=partial(settle, settings),
        ),
    )


def settle(settings: ImageSettings, data: Examples) -> ImageSettings:
    """Return the settings with None replaced by values for the images and the device."""
    channels, height, width = data.shape
    side, on_cpu = max(height, width), jax.default_backend() == "cpu"
    network = settings.network or ("mixer" if on_cpu else "unet")
    own = {
        "unet": (96 if channels > 1 and side > 16 else 64, 2),
        "mixer": (64, 4),
        "mlp": (256, 4),
    }[network]
    rate = _RATES[network] if settings.learning_rate is None else settings.learning_rate
    mean, std = _LEVELS.get(network, (ImageSettings.level_mean, ImageSettings.level_std))
    train, labels = data.splits.train, data.labels
    if settings.labels and settings.classes is None and (labels is None or has_stray(getattr(labels, "names", ()))):
        advice = "" if settings.data in IMAGE_SETS else f"{advice_on_labels(Path(settings.data))}, or "
        got = "none in" if labels is None else "some beside the folders of"
        raise ValueError(f"labels: expected images with labels, got {got} {settings.data}; {advice}leave --labels out")
    counted = 0 if not settings.labels or labels is None else int(max(part.max(initial=-1) for part in labels)) + 1
    if settings.classes is not None and settings.classes < counted:
        raise ValueError(
            f"classes: expected {counted} or more, as the highest label is {counted - 1}, got {settings.classes}; "
            "leave --classes out"
        )
    return replace(
        settings,
        network=network,
        width=own[0] if settings.width is None else settings.width,
        depth=own[1] if settings.depth is None else settings.depth,
        learning_rate=rate,
        precision=settings.precision or ("float32" if on_cpu else "bfloat16"),
        sigma_data=measure_sigma_data(train, CENTER) if settings.sigma_data is None else settings.sigma_data,
        level_mean=mean if settings.level_mean is None else settings.level_mean,
        level_std=std if settings.level_std is None else settings.level_std,
        classes=counted if settings.classes is None else settings.classes,
        level_weight=2 / math.prod(data.shape) if settings.level_weight is None else settings.level_weight,
    )


def build(key: PRNGKeyArray, settings: ImageSettings, data: Examples) -> tuple[NoiseConditionalEBLVM, Posterior]:
    """Return a new model and posterior for images of the data's shape."""
    channels, height, width = data.shape
    settings = settle(settings, data)
    for_model, for_posterior = jax.random.split(key)
    model = normalize_weights(_build(for_model, settings, (channels, height, width)))
    return model, FeaturePosterior.init(for_posterior, model) if settings.latents else ExactPosterior()


def _build(key: PRNGKeyArray, settings: ImageSettings, shape: tuple[int, int, int]) -> NoiseConditionalEBLVM:
    assert settings.width is not None
    assert settings.depth is not None
    assert settings.sigma_data is not None
    common = {
        "sigma_data": settings.sigma_data,
        "h": Real(settings.latents) if settings.latents else Empty(),
        "classes": settings.classes or 0,
        "center": CENTER,
        "normalized": settings.normalized,
    }
    dtype = None if settings.precision == "float32" else jnp.dtype(settings.precision)
    if settings.network == "unet":
        widths = tuple(min(settings.width * 2**level, max(settings.width, _WIDEST)) for level in range(_levels(shape)))
        return NoiseConditionalEBLVM.images(
            key, shape, widths=widths, blocks=settings.depth, compute_dtype=dtype, **common
        )
    if settings.network == "mixer":
        patch = 4 if min(shape[1:]) >= 12 else 2
        layers = {"patch": min(patch, *shape[1:]), "width": settings.width, "depth": settings.depth}
        return NoiseConditionalEBLVM.patches(key, shape, **layers, compute_dtype=dtype, **common)
    return NoiseConditionalEBLVM.vectors(key, shape, width=settings.width, depth=settings.depth, **common)


def _levels(shape: tuple[int, int, int]) -> int:
    """Number of levels of a unet whose lowest level has sides of about 8 pixels."""
    levels = 1
    while min(shape[1:]) >= 2**levels * (_LOWEST - 1):
        levels += 1
    return levels


def learner(settings: ImageSettings) -> Learner:
    """Adam on DSM at all noise levels."""
    sigma_data = 1.0 if settings.sigma_data is None else settings.sigma_data
    peak = _RATES["unet"] if settings.learning_rate is None else settings.learning_rate
    model_rate, posterior_rate = rates(settings, peak, settings.posterior_learning_rate)
    latents = Variational(settings.samples) if settings.latents else Enumerated()
    level_weight = 1.0 if settings.level_weight is None else settings.level_weight
    levels = {"level_weight": level_weight, "uniform": settings.level_share} if settings.normalized else {}
    if settings.level_mean is not None and settings.level_std is not None:
        levels |= {"log_mean": settings.level_mean, "log_std": settings.level_std}
    dropout = settings.label_dropout if settings.labels else 0.0
    return Learner(
        NoiseConditionalDSM(sigma_data, latents, label_dropout=dropout, **levels),
        adam(model_rate, b2=0.99, clip=settings.clip)
        if settings.network == "mlp"
        else normalized_adam(model_rate, clip=settings.clip),
        adam(posterior_rate, b2=0.99, clip=settings.clip),
        posterior_steps=settings.posterior_steps if settings.latents else 0,
        ema=settings.ema,
    )


def load(settings: ImageSettings, check: bool = True) -> Examples:
    """Load the images. With flips, mirrored images are trained on too; with labels, the classes are a context."""
    if settings.data == IMAGE_PRESETS["images"].data and not Path(settings.data).exists():
        raise ValueError(
            "data: expected a folder, an archive or a file of images, got none; give --data FOLDER, for example"
        )
    images = load_images(settings.data, seed=settings.seed, check=check)
    train = images.splits.train
    if check:
        Batches(len(train), settings.batch, settings.seed)
        if settings.labels and not settings.label_dropout:
            raise ValueError(
                "label_dropout: expected more than 0 with --labels, as a run's pictures, completions and guidance take "
                "images without a label too, got 0; give 0.1, for example"
            )
    context = None
    if settings.labels and images.labels is not None:
        context = {"label": Splits(*(np.asarray(part, np.int32) for part in images.labels))}
    parts = (train, train[..., ::-1]) if settings.flips else ()
    return Examples(images.splits, images.labels, context, parts)


def _activations(settings: ImageSettings, shape: tuple[int, ...]) -> int:
    _, height, width = shape
    size = 4 if settings.precision == "float32" else 2
    units, depth = settings.width or 128, settings.depth or 4
    places = {"unet": height * width, "mixer": height * width // 16, "mlp": 1}[settings.network or "mixer"]
    return settings.batch * depth * units * places * size
