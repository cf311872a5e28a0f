"""Settings of recipes, as frozen dataclasses of plain values, and the presets. This module does not import JAX."""

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from vages.bounds import (
    ITERATIONS,
    MAX_ENUMERATED,
    MAYBE_ITERATIONS,
    MAYBE_SCALE,
    SCALE,
    SEED,
    Bounds,
    check_fields,
    shown,
)

Method = Literal["vages-dsm", "dsm", "bidsm", "vages-ksd", "ksd", "is-ksd", "cd", "pcd", "nce", "vnce"]
DeepMethod = Literal["vages-mdsm", "bimdsm", "mdsm"]
Decay = Literal["constant", "cosine", "trapezoid"]
Network = Literal["resnet", "mlp"]
ConditionalNetwork = Literal["unet", "mixer", "mlp"]
Gap = Literal["kl", "fisher"]
Spacing = Literal["linear", "geometric"]
Precision = Literal["float32", "bfloat16"]
UNROLLED = Bounds(0, 1000)  # steps that are unrolled at compile time
DECAY = Bounds(0, 1 - 2**-24, "0.999 is usual")  # the largest float32 below 1
_BATCH = Bounds(2, 2**24, "the noise levels are spread over the batch, and a single example has the first alone")


@dataclass(frozen=True)
class Training:
    """Settings that every recipe of your own has. A subclass adds fields, all of which need defaults."""

    kind: ClassVar[str] = "a custom recipe"  # kind of model, in words

    steps: Annotated[int, ITERATIONS] = 10_000  # iterations
    batch: Annotated[int, Bounds(1, 2**24)] = 100  # examples per iteration, if the data are an array
    seed: Annotated[int, SEED] = 0  # seed of the initial parameters and all noise
    seeds: Annotated[int, Bounds(1, 2**16)] = 1  # number of runs in one program, with seeds SEED, SEED + 1, ...
    evaluate_every: Annotated[int, ITERATIONS] = 1000  # iterations between two evaluations
    # train on (v - mean) / scale, for each coordinate of the training examples; results are in the data's units
    standardize: bool = False

    def __post_init__(self) -> None:
        check_plain(self)
        check_choices(self)
        check_fields(self)


@dataclass(frozen=True)
class GRBMSettings:
    """All settings that determine the result. The defaults are the paper's for the checkerboard."""

    kind: ClassVar[str] = "a GRBM"

    data: str = "checkerboard"  # a toy (checkerboard, rings, ...), freyface, or a .npy, .npz or .csv file
    method: Method = "vages-dsm"  # training method
    latents: Annotated[int, Bounds(1, 2**20)] = 4  # latent units
    samples: Annotated[int | None, Bounds(1, 2**20)] = None  # L, samples of the posterior; None: the paper's
    posterior_steps: Annotated[int, UNROLLED] = 5  # K, training steps of the posterior on each batch
    unrolled: Annotated[int, UNROLLED] = 5  # N, unrolled posterior steps of bidsm
    sigma: Annotated[float, SCALE] = 0.05  # noise level of DSM
    bandwidth: Annotated[float, SCALE] = 0.1  # bandwidth of KSD's kernel
    chain_steps: Annotated[int, Bounds(1, 10**6)] = 1  # k, Gibbs steps of cd and pcd
    control_variate: bool = False  # subtract the control variate from VaES
    steps: Annotated[int, ITERATIONS] = 100_000  # iterations
    batch: Annotated[int, Bounds(1, 2**24)] = 100  # examples per iteration
    learning_rate: Annotated[float, SCALE] = 1e-3  # Adam's learning rate, for model and posterior
    decay: Decay = "constant"  # learning rate schedule; cosine: to 0 over the run, trapezoid: over its last fifth
    warmup: Annotated[int, MAYBE_ITERATIONS] = 0  # iterations over which the learning rate rises to its value
    clip: Annotated[float | None, SCALE] = None  # norm to which the gradient is clipped
    ema: Annotated[float | None, DECAY] = None  # decay of the averaged parameters, which are then evaluated
    seeds: Annotated[int, Bounds(1, 2**16)] = 1  # number of runs in one program, with seeds SEED, SEED + 1, ...
    seed: Annotated[int, Bounds(0, 2**64)] = 0  # seed of the data, the initial parameters and all noise
    evaluate_every: Annotated[int, ITERATIONS] = 2000  # iterations between two evaluations of the log-likelihood
    annealing: Annotated[int, Bounds(1, 10**6)] = 2000  # chains and temperatures of AIS, used with many latents
    # train on (v - mean) / scale, for each coordinate of the training examples; results are in the data's units
    standardize: bool = False

    def __post_init__(self):
        check_choices(self)
        check_place(self.data)
        check_fields(self)
        if self.seed + self.seeds > 2**32:
            raise ValueError(
                f"seed: expected seeds below 2**32, got {self.seed} and {self.seeds - 1} after it; choose another"
            )
        if self.control_variate and not self.method.startswith("vages"):
            raise ValueError(
                f"control_variate: expected a method vages-dsm or vages-ksd, got {self.method}; leave it out"
            )
        if self.method in ("dsm", "ksd") and self.latents > MAX_ENUMERATED:
            raise ValueError(
                f"latents: expected at most {MAX_ENUMERATED} for the exact method {self.method}, which sums over all "
                f"states, got {self.latents}; use vages-{self.method}"
            )


@dataclass(frozen=True)
class DeepSettings:
    """All settings that determine the result. The defaults are the paper's for CIFAR10, except warm-up, EMA and dtype.

    `mdsm` trains a plain EBM of the same size with exact gradients. It ignores settings of latents and the posterior.
    """

    kind: ClassVar[str] = "a deep model"

    data: str = "cifar10"  # mnist, cifar10, celeba, digits, or a folder, archive or file of images
    method: DeepMethod = "vages-mdsm"  # training method
    network: Network = "resnet"  # mlp is faster on a CPU
    width: Annotated[int, Bounds(1, 2**16)] = 128  # channels of the first convolution, or units of a layer
    depth: Annotated[int, Bounds(1, 256)] = 3  # blocks at each resolution, or layers
    latents: Annotated[int, Bounds(1, 2**20)] = 50  # latent units
    head_width: Annotated[int | None, Bounds(1, 2**20)] = None  # None: half a resnet's last layer, or an mlp's width
    samples: Annotated[int, Bounds(1, 2**20)] = 2  # L, samples of the posterior for each of VaES and VaGES
    posterior_steps: Annotated[int, UNROLLED] = 5  # K, training steps of the posterior on each batch
    divergence: Gap = "fisher"  # divergence that the posterior minimizes
    corrector_steps: Annotated[int, Bounds(0, 10**5)] = 5  # C, Langevin steps on samples of the posterior
    # step size of the corrector
    corrector_size: Annotated[float, replace(SCALE, hint="corrector_steps 0 corrects nothing")] = 1e-2
    # standard deviation of the corrector's noise
    corrector_noise: Annotated[float, replace(MAYBE_SCALE, hint="0 adds none")] = 1e-4
    unrolled: Annotated[int, UNROLLED] = 0  # N, unrolled posterior steps of bimdsm
    sigma_base: Annotated[float, SCALE] = 0.1  # noise level of the target
    sigma_begin: Annotated[float, SCALE] = 0.05  # the first noise level
    sigma_end: Annotated[float, SCALE] = 1.2  # the last noise level
    spacing: Spacing = "linear"  # spacing of the noise levels between them
    flips: bool = False  # also train on mirrored images
    steps: Annotated[int, ITERATIONS] = 300_000  # iterations
    batch: Annotated[int, _BATCH] = 100  # examples per iteration
    learning_rate: Annotated[float, SCALE] = 5e-5  # Adam's learning rate, for model and posterior
    posterior_learning_rate: Annotated[float | None, SCALE] = None  # learning rate of the posterior; None: the same
    final_learning_rate: Annotated[float, MAYBE_SCALE] = 1e-6  # learning rate at the end of the decay
    decay: Decay = "cosine"  # learning rate schedule
    # iterations over which the learning rate rises to its value, at most a tenth of all
    warmup: Annotated[int, MAYBE_ITERATIONS] = 1000
    clip: Annotated[float | None, SCALE] = None  # norm to which the gradient is clipped
    ema: Annotated[float | None, DECAY] = 0.9995  # decay of the averaged parameters, which are then used
    precision: Precision = "bfloat16"  # precision of the networks; parameters and energies are float32
    seed: Annotated[int, SEED] = 0  # seed of the initial parameters and all noise
    sampling: float = 1.0  # length of the sampling schedule; 1 is the paper's 2,700 steps
    # temperature at which the sampler starts; the noise in its chains is sigma_base times its square root
    top_temperature: Annotated[float, Bounds(1, 1e8)] = 100.0
    # iterations between two evaluations of FID-1k, by which the best weights are kept; 0: the last are kept
    fid_every: Annotated[int, MAYBE_ITERATIONS] = 0

    def __post_init__(self):
        check_choices(self)
        check_place(self.data)
        check_fields(self)
        if not 0 < self.sampling <= 10:
            raise ValueError(f"sampling: expected a length above 0, up to 10, got {self.sampling}; 1 is the paper's")
        if self.fid_every and self.steps % self.fid_every:
            raise ValueError(
                f"fid_every: expected a divisor of the {self.steps} iterations, got {self.fid_every}; change either"
            )


@dataclass(frozen=True)
class ImageSettings:
    """All settings that determine the result. The defaults are those for CIFAR10 on a GPU.

    When a run is started, None is replaced by a value for the images and the device, except for clip and ema.
    """

    kind: ClassVar[str] = "a noise-conditional model"

    data: str = "cifar10"  # mnist, cifar10, celeba, digits, or a folder, archive or file of images
    network: ConditionalNetwork | None = None  # mixer and mlp are faster on a CPU; None: unet, or mixer on a CPU
    width: Annotated[int | None, Bounds(1, 2**16)] = None  # channels of a unet's first level, or units of a layer
    depth: Annotated[int | None, Bounds(1, 256)] = None  # blocks at each level of a unet, or in total
    latents: Annotated[int, Bounds(0, 2**20)] = 64  # latent units; 0: none, a plain EBM
    samples: Annotated[int, Bounds(1, 2**20)] = 2  # L, samples of the posterior for each of VaES and VaGES
    posterior_steps: Annotated[int, UNROLLED] = 3  # K, training steps of the posterior on each batch
    labels: bool = False  # condition the model on the classes of the images
    classes: Annotated[int | None, Bounds(0, 10**6)] = None  # number of classes, with labels; None: counted
    label_dropout: Annotated[float, Bounds(0, 1)] = 0.1  # share of labels that are dropped, to train without them too
    flips: bool = True  # also train on mirrored images
    # root mean square of the images about 0.5; None: measured
    sigma_data: Annotated[float | None, SCALE] = None
    # mean of ln(σ / σ_d) over the noise levels of training; None: 0.3 for a mixer, EDM's -0.507 for other networks
    level_mean: Annotated[float | None, Bounds(-20, 20)] = -1.2 + math.log(2)
    # standard deviation of ln(σ / σ_d); None: 1.4 for a mixer, 1.2 for other networks
    level_std: Annotated[float | None, Bounds(1e-3, 10)] = 1.2
    normalized: bool = False  # also match the score in the noise level, for a likelihood in one pass
    # weight of the score in the noise level, in a normalized model; None: 2 / d for images of d numbers
    level_weight: Annotated[float | None, SCALE] = None
    # share of images whose ln(σ) is drawn uniformly, in a normalized model
    level_share: Annotated[float, Bounds(0, 1)] = 0.25
    steps: Annotated[int, ITERATIONS] = 40_000  # iterations
    batch: Annotated[int, _BATCH] = 256  # examples per iteration
    # Adam's learning rate for the model; None: 0.006 for a unet, 0.02 for a mixer, 0.001 for an mlp
    learning_rate: Annotated[float | None, SCALE] = None
    posterior_learning_rate: Annotated[float, SCALE] = 1e-3  # Adam's learning rate for the posterior
    # learning rate schedule; cosine: to 0 over the run, trapezoid: over its last fifth
    decay: Decay = "trapezoid"
    # iterations over which the learning rates rise to their values, at most a tenth of all
    warmup: Annotated[int, MAYBE_ITERATIONS] = 400
    clip: Annotated[float | None, SCALE] = 1.0  # norm to which the gradients are clipped
    ema: Annotated[float | None, DECAY] = 0.9996  # decay of the averaged parameters, which are then used
    # precision of the network; energies are float32; None: bfloat16, or float32 on a CPU
    precision: Precision | None = None
    seed: Annotated[int, SEED] = 0  # seed of the initial parameters and all noise
    sampling_steps: Annotated[int, Bounds(2, 10**4)] = 18  # n steps of Heun's method, 2 n - 1 gradients per sample

    def __post_init__(self):
        check_choices(self)
        check_place(self.data)
        check_fields(self)


@dataclass(frozen=True)
class PointSettings:
    """All settings that determine the result. The defaults are those for the board of 4 × 4 squares.

    When a run is started, None is replaced by a value for the data, except for clip and ema.
    """

    kind: ClassVar[str] = "a normalized model of points"

    data: str = "board"  # a toy (board, rings, ...), or a .npy, .npz or .csv file with an example in each row
    width: Annotated[int, Bounds(1, 2**14)] = 128  # units of a layer
    depth: Annotated[int, Bounds(1, 256)] = 2  # blocks of the network
    # largest frequency of the network's Fourier features, for sharp edges; 0: no such features; None: 8 in 2D, else 0
    detail: Annotated[float | None, Bounds(0, 1e3)] = None
    latents: Annotated[int, Bounds(0, 2**20)] = 8  # latent units; 0: none, a plain EBM
    samples: Annotated[int, Bounds(2, 2**20)] = 2  # L, samples of the posterior for each of VaES and VaGES
    posterior_steps: Annotated[int, UNROLLED] = 3  # K, training steps of the posterior on each batch
    level_weight: Annotated[float, SCALE] = 1.0  # weight of the score in the noise level, which normalizes the density
    sigma_data: Annotated[float | None, SCALE] = None  # root mean square of the data about center; None: measured
    center: Annotated[float | None, Bounds(-1e30, 1e30)] = None  # the mean of the data; None: measured
    steps: Annotated[int, ITERATIONS] = 4500  # iterations
    batch: Annotated[int, _BATCH] = 256  # examples per iteration
    learning_rate: Annotated[float, SCALE] = 2e-3  # Adam's learning rate for the model
    posterior_learning_rate: Annotated[float, SCALE] = 1e-3  # Adam's learning rate for the posterior
    decay: Decay = "cosine"  # learning rate schedule; cosine: to 0 over the run, trapezoid: over its last fifth
    # iterations over which the learning rates rise to their values, at most a tenth of all
    warmup: Annotated[int, MAYBE_ITERATIONS] = 300
    clip: Annotated[float | None, SCALE] = 1.0  # norm to which the gradients are clipped
    ema: Annotated[float | None, DECAY] = 0.999  # decay of the averaged parameters, which are then used
    seed: Annotated[int, SEED] = 0  # seed of the data, the initial parameters and all noise
    # train on (v - mean) / scale, for each coordinate of the training examples; results are in the data's units
    standardize: bool = False

    def __post_init__(self):
        check_choices(self)
        check_place(self.data)
        check_fields(self)


def check_plain(settings: Any) -> None:
    """Raise TypeError unless every value is a number, a string, a bool or None, and of the field's type."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value, kind = getattr(settings, field.name), hints[field.name]
        if kind in (int, float, str) and not isinstance(value, (int, float) if kind is float else kind):
            raise TypeError(
                f"{field.name}: expected {kind.__name__}, got {shown(value)}; correct the default or the option"
            )
        if not isinstance(value, bool | int | float | str | None):
            raise TypeError(
                f"{field.name}: expected a number, a text, true, false or None as a setting, got "
                f"{type(value).__name__}; make it in the recipe's functions"
            )


def check_choices(settings: Any) -> None:
    """Raise ValueError if a setting is not one of its allowed words or not a bool, as in a file edited by hand."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value, kind = getattr(settings, field.name), hints[field.name]
        choices = _choices(kind)
        if choices and value not in choices:
            choices = ", ".join(map(str, choices))
            raise ValueError(f"{field.name}: expected one of {choices}, got {shown(repr(value))}; choose one")
        if kind is bool and type(value) is not bool:
            raise ValueError(f"{field.name}: expected true or false, got {shown(value)}; choose one")


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the allowed values of a `Literal`, with None if it is optional; () for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = get_args(kind)
    return (*get_args(parts[0]), None) if parts and get_origin(parts[0]) is Literal else ()


def check_place(data: Any) -> None:
    """Raise ValueError unless `data` can be the name or the path of a dataset."""
    if type(data) is not str or not data or "\0" in data:
        raise ValueError(f"data: expected the name of a dataset, file or folder, got {shown(data)}; name one")


CHECKERBOARD = GRBMSettings()
FREYFACE = GRBMSettings(data="freyface", latents=400, sigma=0.3, steps=20_000, learning_rate=2e-4)
PRESETS = {"checkerboard": CHECKERBOARD, "freyface": FREYFACE}

CIFAR10 = DeepSettings()
MNIST = DeepSettings(
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
CELEBA = DeepSettings(data="celeba", flips=True, corrector_steps=50, corrector_size=5e-4)
DIGITS = DeepSettings(
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
DEEP_PRESETS = {"mnist-paper": MNIST, "cifar10-paper": CIFAR10, "celeba-paper": CELEBA, "digits-paper": DIGITS}

IMAGE_PRESETS = {
    "cifar10": ImageSettings(),
    "mnist": ImageSettings(data="mnist", flips=False, steps=20_000),
    "celeba": ImageSettings(data="celeba", steps=60_000, batch=128),
    "digits": ImageSettings(
        data="digits",
        network="mlp",
        width=256,
        depth=4,
        latents=16,
        flips=False,
        steps=10_000,
        batch=128,
        decay="cosine",
        ema=0.999,
    ),
    "images": ImageSettings(
        data="images", flips=False, level_mean=None, level_std=None, steps=12_500, batch=16, ema=0.999
    ),
}

POINT_PRESETS = {"board": PointSettings()}

ALL = POINT_PRESETS | PRESETS | IMAGE_PRESETS | DEEP_PRESETS
