"""The settings of recipes: frozen dataclasses of plain values, and the presets. Nothing here imports JAX."""

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
UNROLLED = Bounds(0, 1000)  # of steps that the compiler lays out one by one
DECAY = Bounds(0, 1 - 2**-24, "0.999 is usual")  # the largest float32 below 1
_BATCH = Bounds(2, 2**24, "the noise levels are spread over the batch, and a single example has the first alone")


@dataclass(frozen=True)
class Training:
    """The settings that every recipe of one's own has. A subclass adds fields, all of them with defaults."""

    kind: ClassVar[str] = "an own recipe"  # of model, in words

    steps: Annotated[int, ITERATIONS] = 10_000  # iterations
    batch: Annotated[int, Bounds(1, 2**24)] = 100  # examples an iteration, where the data are an array
    seed: Annotated[int, SEED] = 0  # of initial parameters and all noise
    seeds: Annotated[int, Bounds(1, 2**16)] = 1  # runs in one program, with seeds SEED, SEED + 1, ...
    evaluate_every: Annotated[int, ITERATIONS] = 1000  # iterations between two evaluations
    # train on (v - mean) / scale, of each coordinate of the training examples; results are in the data's units
    standardize: bool = False

    def __post_init__(self) -> None:
        check_plain(self)
        check_choices(self)
        check_fields(self)


@dataclass(frozen=True)
class GRBMSettings:
    """Everything that decides a result. The defaults are the paper's for the checkerboard."""

    kind: ClassVar[str] = "a GRBM"

    data: str = "checkerboard"  # a toy (checkerboard, rings, ...), freyface, or a .npy, .npz or .csv file
    method: Method = "vages-dsm"  # how to learn
    latents: Annotated[int, Bounds(1, 2**20)] = 4  # latent units
    samples: Annotated[int | None, Bounds(1, 2**20)] = None  # L, of the posterior; None: the paper's for the method
    posterior_steps: Annotated[int, UNROLLED] = 5  # K, steps of the posterior on each batch
    unrolled: Annotated[int, UNROLLED] = 5  # N, unrolled posterior steps of bidsm
    sigma: Annotated[float, SCALE] = 0.05  # noise level of DSM
    bandwidth: Annotated[float, SCALE] = 0.1  # of KSD's kernel
    chain_steps: Annotated[int, Bounds(1, 10**6)] = 1  # k, Gibbs steps of cd and pcd
    control_variate: bool = False  # subtract the control variate from VaES
    steps: Annotated[int, ITERATIONS] = 100_000  # iterations
    batch: Annotated[int, Bounds(1, 2**24)] = 100  # examples an iteration
    learning_rate: Annotated[float, SCALE] = 1e-3  # of Adam, for model and posterior
    decay: Decay = "constant"  # of the learning rate; cosine: to 0 over all iterations, trapezoid: over the last fifth
    warmup: Annotated[int, MAYBE_ITERATIONS] = 0  # iterations over which the learning rate rises to its value
    clip: Annotated[float | None, SCALE] = None  # the gradient's largest norm
    ema: Annotated[float | None, DECAY] = None  # of the averages of model and posterior, which are then evaluated
    seeds: Annotated[int, Bounds(1, 2**16)] = 1  # how many runs, with seeds SEED, SEED + 1, ..., in one program
    seed: Annotated[int, Bounds(0, 2**64)] = 0  # of data, initial parameters and all noise
    evaluate_every: Annotated[int, ITERATIONS] = 2000  # iterations between two looks at the log-likelihood
    annealing: Annotated[int, Bounds(1, 10**6)] = 2000  # chains and temperatures of AIS, for many latents
    # train on (v - mean) / scale, of each coordinate of the training examples; results are in the data's units
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
    """Everything that decides a result. The defaults are the paper's for CIFAR10, but for warm-up, EMA and dtype.

    `mdsm` learns a plain EBM of the same size, exactly; it has no posterior, and no use for what is said of one.
    """

    kind: ClassVar[str] = "a deep model"

    data: str = "cifar10"  # mnist, cifar10, celeba, digits, or a folder, archive or file of images
    method: DeepMethod = "vages-mdsm"  # how to learn
    network: Network = "resnet"  # mlp is quicker on a CPU
    width: Annotated[int, Bounds(1, 2**16)] = 128  # channels of the first convolution, or units of a layer
    depth: Annotated[int, Bounds(1, 256)] = 3  # blocks at each resolution, or layers
    latents: Annotated[int, Bounds(1, 2**20)] = 50  # latent units
    head_width: Annotated[int | None, Bounds(1, 2**20)] = None  # None: half a resnet's last layer, or an mlp's width
    samples: Annotated[int, Bounds(1, 2**20)] = 2  # L, samples of the posterior for each of VaES and VaGES
    posterior_steps: Annotated[int, UNROLLED] = 5  # K, steps of the posterior on each batch
    divergence: Gap = "fisher"  # what the posterior lessens
    corrector_steps: Annotated[int, Bounds(0, 10**5)] = 5  # C, Langevin steps on samples of the posterior
    # step size of the corrector
    corrector_size: Annotated[float, replace(SCALE, hint="corrector_steps 0 corrects nothing")] = 1e-2
    # standard deviation of the corrector's noise
    corrector_noise: Annotated[float, replace(MAYBE_SCALE, hint="0 adds none")] = 1e-4
    unrolled: Annotated[int, UNROLLED] = 0  # N, unrolled posterior steps of bimdsm
    sigma_base: Annotated[float, SCALE] = 0.1  # noise level of the target
    sigma_begin: Annotated[float, SCALE] = 0.05  # the first noise level
    sigma_end: Annotated[float, SCALE] = 1.2  # the last noise level
    spacing: Spacing = "linear"  # of the noise levels between them
    flips: bool = False  # each image also as in a mirror
    steps: Annotated[int, ITERATIONS] = 300_000  # iterations
    batch: Annotated[int, _BATCH] = 100  # examples an iteration
    learning_rate: Annotated[float, SCALE] = 5e-5  # of Adam, for model and posterior
    posterior_learning_rate: Annotated[float | None, SCALE] = None  # None: the same
    final_learning_rate: Annotated[float, MAYBE_SCALE] = 1e-6  # where the decay ends
    decay: Decay = "cosine"  # of the learning rate over the run
    # iterations over which the learning rate rises to its value, a tenth of all at most
    warmup: Annotated[int, MAYBE_ITERATIONS] = 1000
    clip: Annotated[float | None, SCALE] = None  # the gradient's largest norm
    ema: Annotated[float | None, DECAY] = 0.9995  # of the averages of model and posterior, which are then used
    precision: Precision = "bfloat16"  # of the networks; parameters and energies are float32
    seed: Annotated[int, SEED] = 0  # of initial parameters and all noise
    sampling: float = 1.0  # length of the sampler's schedule, 1 is the paper's 2,700 steps
    # where the sampler begins; the noise in its chains is sigma_base times the root of it
    top_temperature: Annotated[float, Bounds(1, 1e8)] = 100.0
    fid_every: Annotated[int, MAYBE_ITERATIONS] = 0  # between two looks at FID-1k, whose best is kept; 0: the last is

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
    """Everything that decides a result. The defaults are those for CIFAR10 on a GPU.

    What is None is decided by the images and the device when a run is started, and is then a setting of the run.
    """

    kind: ClassVar[str] = "a noise-conditional model"

    data: str = "cifar10"  # mnist, cifar10, celeba, digits, or a folder, archive or file of images
    network: ConditionalNetwork | None = None  # mixer and mlp are quicker on a CPU; None: unet, on a CPU mixer
    width: Annotated[int | None, Bounds(1, 2**16)] = None  # channels of a unet's first level, or units of a layer
    depth: Annotated[int | None, Bounds(1, 256)] = None  # blocks at each level of a unet, or in all
    latents: Annotated[int, Bounds(0, 2**20)] = 64  # latent units; 0: none, a plain EBM
    samples: Annotated[int, Bounds(1, 2**20)] = 2  # L, samples of the posterior for each of VaES and VaGES
    posterior_steps: Annotated[int, UNROLLED] = 3  # K, steps of the posterior on each batch
    labels: bool = False  # learn the images of each class, where they have labels, besides those of all
    classes: Annotated[int | None, Bounds(0, 10**6)] = None  # how many there are, with labels; None: counted
    label_dropout: Annotated[float, Bounds(0, 1)] = 0.1  # share of the labels that are left out, for those of all
    flips: bool = True  # each image also as in a mirror
    # root mean square of the images, less 0.5; None: measured
    sigma_data: Annotated[float | None, SCALE] = None
    # mean of ln(σ / σ_d) over the noise levels of training; None: 0.3 for a mixer, EDM's -0.507 for other networks
    level_mean: Annotated[float | None, Bounds(-20, 20)] = -1.2 + math.log(2)
    level_std: Annotated[float | None, Bounds(1e-3, 10)] = 1.2  # its deviation; None: 1.4 for a mixer, else 1.2
    normalized: bool = False  # match the score in the noise level too, for a likelihood in one pass
    # of that score, in a normalized model; None: 2 / d for d numbers in an image
    level_weight: Annotated[float | None, SCALE] = None
    level_share: Annotated[float, Bounds(0, 1)] = 0.25  # of images whose noise level is uniform, in a normalized model
    steps: Annotated[int, ITERATIONS] = 40_000  # iterations
    batch: Annotated[int, _BATCH] = 256  # examples an iteration
    # of Adam, for the model; None: 0.006 for a unet, 0.02 for a mixer, 0.001 for an mlp
    learning_rate: Annotated[float | None, SCALE] = None
    posterior_learning_rate: Annotated[float, SCALE] = 1e-3  # of Adam, for the posterior
    # of the learning rates; cosine: to 0 over all iterations, trapezoid: over the last fifth
    decay: Decay = "trapezoid"
    # iterations over which the learning rates rise to their values, a tenth of all at most
    warmup: Annotated[int, MAYBE_ITERATIONS] = 400
    clip: Annotated[float | None, SCALE] = 1.0  # the largest norm of the gradients of model and posterior
    ema: Annotated[float | None, DECAY] = 0.9996  # of the averages of model and posterior, which are then used
    precision: Precision | None = None  # of the network; energies are float32; None: bfloat16, on a CPU float32
    seed: Annotated[int, SEED] = 0  # of initial parameters and all noise
    sampling_steps: Annotated[int, Bounds(2, 10**4)] = 18  # of Heun's method, n for 2 n - 1 gradients a sample

    def __post_init__(self):
        check_choices(self)
        check_place(self.data)
        check_fields(self)


@dataclass(frozen=True)
class PointSettings:
    """Everything that decides a result. The defaults are those for the board of 4 × 4 squares.

    What is None is decided by the data when a run is started, and is then a setting of the run.
    """

    kind: ClassVar[str] = "a normalized model of points"

    data: str = "board"  # a toy (board, rings, ...), or a .npy, .npz or .csv file with an example in each row
    width: Annotated[int, Bounds(1, 2**14)] = 128  # units of a layer
    depth: Annotated[int, Bounds(1, 256)] = 2  # blocks of the network
    # the largest angle of the sines of an example that the network sees, for sharp edges; 0: none; None: 8 on a plane
    detail: Annotated[float | None, Bounds(0, 1e3)] = None
    latents: Annotated[int, Bounds(0, 2**20)] = 8  # latent units; 0: none, a plain EBM
    samples: Annotated[int, Bounds(2, 2**20)] = 2  # L, samples of the posterior for each of VaES and VaGES
    posterior_steps: Annotated[int, UNROLLED] = 3  # K, steps of the posterior on each batch
    level_weight: Annotated[float, SCALE] = 1.0  # of the score in the noise level, which normalizes the density
    sigma_data: Annotated[float | None, SCALE] = None  # root mean square of the data, less their mean; None: measured
    center: Annotated[float | None, Bounds(-1e30, 1e30)] = None  # the mean of the data; None: measured
    steps: Annotated[int, ITERATIONS] = 4500  # iterations
    batch: Annotated[int, _BATCH] = 256  # examples an iteration
    learning_rate: Annotated[float, SCALE] = 2e-3  # of Adam, for the model
    posterior_learning_rate: Annotated[float, SCALE] = 1e-3  # of Adam, for the posterior
    decay: Decay = "cosine"  # of the learning rates; cosine: to 0 over all iterations, trapezoid: over the last fifth
    # iterations over which the learning rates rise to their values, a tenth of all at most
    warmup: Annotated[int, MAYBE_ITERATIONS] = 300
    clip: Annotated[float | None, SCALE] = 1.0  # the largest norm of the gradients of model and posterior
    ema: Annotated[float | None, DECAY] = 0.999  # of the averages of model and posterior, which are then used
    seed: Annotated[int, SEED] = 0  # of the data, initial parameters and all noise
    # train on (v - mean) / scale, of each coordinate of the training examples; results are in the data's units
    standardize: bool = False

    def __post_init__(self):
        check_choices(self)
        check_place(self.data)
        check_fields(self)


def check_plain(settings: Any) -> None:
    """Raise unless every value is one that an option and a file of JSON can give, and of the field's type."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value, kind = getattr(settings, field.name), hints[field.name]
        if kind in (int, float, str) and not isinstance(value, (int, float) if kind is float else kind):
            raise TypeError(
                f"{field.name}: expected {kind.__name__}, got {shown(value)}; mend the default or the option"
            )
        if not isinstance(value, bool | int | float | str | None):
            raise TypeError(
                f"{field.name}: expected a number, a text, true, false or None as a setting, got "
                f"{type(value).__name__}; make it in the recipe's functions"
            )


def check_choices(settings: Any) -> None:
    """Raise where a setting that is a choice among words is none of them, as in a file that was edited by hand."""
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
    """The values of a choice among words, and None where it may be left open."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = get_args(kind)
    return (*get_args(parts[0]), None) if parts and get_origin(parts[0]) is Literal else ()


def check_place(data: Any) -> None:
    """Raise unless this can be the name or the place of data."""
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
