"""Deep models of images: the settings, and the learner, model and data that they name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.recipes.recipe import DECAY, UNROLLED, check_choices
from vages.bounds import ITERATIONS, MAYBE_ITERATIONS, MAYBE_SCALE, SCALE, SEED, Bounds, check_fields
from vages.data import Batches, Images, load_images
from vages.models import EBM, DeepEBLVM
from vages.nets.network import check_image_shape
from vages.objectives import MDSM, BiMDSM, Enumerated, NoiseRange, Objective, Variational
from vages.optimizers import Decay, adam, learning_rate
from vages.posteriors import Corrector, ExactPosterior, GaussianPosterior, Posterior, fisher, kl
from vages.training import Job, init_seeds, one_seed
from vages.training.learner import Learner, LearnerState

DeepMethod = Literal["vages-mdsm", "bimdsm", "mdsm"]
Network = Literal["resnet", "mlp"]
Gap = Literal["kl", "fisher"]
Spacing = Literal["linear", "geometric"]
Precision = Literal["float32", "bfloat16"]
_BATCH = Bounds(2, 2**24, "the noise levels are spread over the batch, and a single example has the first alone")


@dataclass(frozen=True)
class DeepRecipe:
    """Everything that decides a result. The defaults are the paper's for CIFAR10, but for warm-up, EMA and dtype.

    `mdsm` learns a plain EBM of the same size, exactly; it has no posterior, and no use for what is said of one.
    """

    data: str = "cifar10"
    method: DeepMethod = "vages-mdsm"
    network: Network = "resnet"
    width: Annotated[int, Bounds(1, 2**16)] = 128  # channels of the first convolution, or units of a layer
    depth: Annotated[int, Bounds(1, 256)] = 3  # blocks at each resolution, or layers
    latents: Annotated[int, Bounds(1, 2**20)] = 50
    head_width: Annotated[int | None, Bounds(1, 2**20)] = None  # None: half a resnet's last layer, or an mlp's width
    samples: Annotated[int, Bounds(1, 2**20)] = 2  # L
    posterior_steps: Annotated[int, UNROLLED] = 5  # K
    divergence: Gap = "fisher"
    corrector_steps: Annotated[int, Bounds(0, 10**5)] = 5  # C
    corrector_size: Annotated[float, replace(SCALE, hint="corrector_steps 0 corrects nothing")] = 1e-2
    corrector_noise: Annotated[float, replace(MAYBE_SCALE, hint="0 adds none")] = 1e-4
    unrolled: Annotated[int, UNROLLED] = 0  # N, of BiMDSM
    sigma_base: Annotated[float, SCALE] = 0.1
    sigma_begin: Annotated[float, SCALE] = 0.05
    sigma_end: Annotated[float, SCALE] = 1.2
    spacing: Spacing = "linear"
    flips: bool = False  # each image also as in a mirror
    steps: Annotated[int, ITERATIONS] = 300_000
    batch: Annotated[int, _BATCH] = 100
    learning_rate: Annotated[float, SCALE] = 5e-5
    posterior_learning_rate: Annotated[float | None, SCALE] = None  # None: the same
    final_learning_rate: Annotated[float, MAYBE_SCALE] = 1e-6
    decay: Decay = "cosine"
    warmup: Annotated[int, MAYBE_ITERATIONS] = 1000
    clip: Annotated[float | None, SCALE] = None
    ema: Annotated[float | None, DECAY] = 0.9995
    precision: Precision = "bfloat16"  # of the networks; parameters and energies are float32
    seed: Annotated[int, SEED] = 0
    sampling: float = 1.0  # length of the sampler's schedule, 1 is the paper's 2,700 steps
    fid_every: Annotated[int, MAYBE_ITERATIONS] = 0  # between two looks at FID-1k, whose best is kept; 0: the last is

    def __post_init__(self):
        check_choices(self)
        check_fields(self)
        if not 0 < self.sampling <= 10:
            raise ValueError(f"sampling: expected a length above 0, up to 10, got {self.sampling}; 1 is the paper's")
        if self.fid_every and self.steps % self.fid_every:
            raise ValueError(
                f"fid_every: expected a divisor of the {self.steps} iterations, got {self.fid_every}; change either"
            )

    @property
    def levels(self) -> NoiseRange:
        """The noise levels."""
        return NoiseRange(self.sigma_begin, self.sigma_end, self.spacing, self.sigma_base)


CIFAR10 = DeepRecipe()
MNIST = DeepRecipe(
    data="mnist",
    width=64,
    depth=2,
    sigma_begin=0.1,
    sigma_end=3.0,
    spacing="geometric",
    steps=100_000,
    learning_rate=1e-4,
    warmup=5000,
)
CELEBA = DeepRecipe(data="celeba", flips=True, corrector_steps=50, corrector_size=5e-4)
DIGITS = DeepRecipe(
    data="digits",
    network="mlp",
    width=256,
    depth=4,
    latents=16,
    head_width=256,
    sigma_begin=0.1,
    sigma_end=1.5,
    spacing="geometric",
    steps=20_000,
    learning_rate=5e-4,
    warmup=200,
    ema=0.999,
    precision="float32",
)
DEEP_PRESETS = {"mnist": MNIST, "cifar10": CIFAR10, "celeba": CELEBA, "digits": DIGITS}


def objective_of_deep(recipe: DeepRecipe) -> Objective:
    """The objective of the recipe's method."""
    if recipe.method == "bimdsm":
        return BiMDSM(recipe.levels, recipe.unrolled, 1)
    if recipe.method == "mdsm":
        return MDSM(recipe.levels, Enumerated())
    corrector = Corrector(recipe.corrector_steps, recipe.corrector_size, recipe.corrector_noise)
    return MDSM(recipe.levels, Variational(recipe.samples, corrector if recipe.corrector_steps else None))


def learner_of_deep(recipe: DeepRecipe) -> Learner:
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
    recipe: DeepRecipe, shape: tuple[int, int, int]
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


def load_deep(recipe: DeepRecipe) -> Images:
    """The recipe's images, checked against its network."""
    images = load_images(recipe.data, seed=recipe.seed)
    if recipe.network == "resnet":
        check_image_shape(images.splits.train.shape[1:])
    Batches(len(images.splits.train), recipe.batch, recipe.seed)
    return images


def training_images(recipe: DeepRecipe, images: Images) -> np.ndarray:
    """The rows that are trained on."""
    first, *others = training_parts(recipe, images)
    return np.concatenate([first, *others]) if others else first


def training_parts(recipe: DeepRecipe, images: Images) -> tuple[np.ndarray, ...]:
    """The same rows as views that need no memory: the images, and with flips their mirror images."""
    train = images.splits.train
    return (train, train[..., ::-1]) if recipe.flips else (train,)


def start_deep(recipe: DeepRecipe, shape: tuple[int, ...]) -> tuple[Learner, LearnerState]:
    """The learner, and its state before the first iteration, for images (channels, height, width)."""
    learner = learner_of_deep(recipe)
    channels, height, width = shape
    seeds = init_seeds(learner, (recipe.seed,), parts_of_deep(recipe, (channels, height, width)), recipe.batch)
    return learner, one_seed(seeds)


def job_of_deep(recipe: DeepRecipe, shape: tuple[int, int, int], rows: int = 1000) -> Job:
    """The recipe ready to be timed, on random images."""
    learner, state = start_deep(recipe, shape)
    return Job(learner, state, jax.random.uniform(jax.random.key(0), (rows, *shape)), recipe.batch)
