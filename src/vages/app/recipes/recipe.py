"""GRBMs: the settings that decide a result, and the learner, model and data that they name."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.bounds import ITERATIONS, MAYBE_ITERATIONS, SCALE, Bounds, check_fields, shown
from vages.data import TOYS, Splits, load_freyface, load_splits, load_toy
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
from vages.optimizers import Decay, adam, learning_rate
from vages.posteriors import BernoulliPosterior, ExactPosterior, Posterior
from vages.training import Job, init_seeds, one_seed
from vages.training.learner import Learner

UNROLLED = Bounds(0, 1000)  # of steps that the compiler lays out one by one
DECAY = Bounds(0, 1 - 2**-24, "0.999 is usual")  # the largest float32 below 1
Method = Literal["vages-dsm", "dsm", "bidsm", "vages-ksd", "ksd", "is-ksd", "cd", "pcd", "nce", "vnce"]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a result. The defaults are the paper's for the checkerboard."""

    data: str = "checkerboard"
    method: Method = "vages-dsm"
    latents: Annotated[int, Bounds(1, 2**20)] = 4
    samples: Annotated[int | None, Bounds(1, 2**20)] = None  # L; None: the paper's choice for the method
    posterior_steps: Annotated[int, UNROLLED] = 5  # K
    unrolled: Annotated[int, UNROLLED] = 5  # N, of BiDSM
    sigma: Annotated[float, SCALE] = 0.05  # noise level of DSM
    bandwidth: Annotated[float, SCALE] = 0.1  # of KSD's kernel
    chain_steps: Annotated[int, Bounds(1, 10**6)] = 1  # k, of CD and PCD
    control_variate: bool = False
    steps: Annotated[int, ITERATIONS] = 100_000
    batch: Annotated[int, Bounds(1, 2**24)] = 100
    learning_rate: Annotated[float, SCALE] = 1e-3
    decay: Decay = "constant"  # of the learning rate; a cosine ends at 0
    warmup: Annotated[int, MAYBE_ITERATIONS] = 0  # iterations over which the learning rate rises to its value
    clip: Annotated[float | None, SCALE] = None  # the gradient's largest norm
    ema: Annotated[float | None, DECAY] = None  # of the averages of model and posterior, which are then evaluated
    seeds: Annotated[int, Bounds(1, 2**16)] = 1
    seed: Annotated[int, Bounds(0, 2**64)] = 0
    evaluate_every: Annotated[int, ITERATIONS] = 2000
    annealing: Annotated[int, Bounds(1, 10**6)] = 2000  # chains and temperatures of AIS, for many latents

    def __post_init__(self):
        check_choices(self)
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


def check_choices(recipe: Any) -> None:
    """Raise where a setting that is a choice among words is none of them, as in a file that was edited by hand."""
    for field in fields(recipe):
        value, choices = getattr(recipe, field.name), get_args(field.type)
        if get_origin(field.type) is Literal and value not in choices:
            raise ValueError(f"{field.name}: expected one of {', '.join(choices)}, got {value!r}; choose one")
        if field.type is bool and type(value) is not bool:
            raise ValueError(f"{field.name}: expected true or false, got {shown(value)}; choose one")
    if type(recipe.data) is not str or not recipe.data or "\0" in recipe.data:
        raise ValueError(f"data: expected the name of a dataset, file or folder, got {shown(recipe.data)}; name one")


CHECKERBOARD = Recipe()
FREYFACE = Recipe(data="freyface", latents=400, sigma=0.3, steps=20_000, learning_rate=2e-4)
PRESETS = {"checkerboard": CHECKERBOARD, "freyface": FREYFACE}


def objective_of(recipe: Recipe) -> Objective:
    """The objective of the recipe's method, with the paper's number of samples where none is given."""

    def samples(default: int) -> int:
        return default if recipe.samples is None else recipe.samples

    return {
        "vages-dsm": lambda: DSM(recipe.sigma, Variational(samples(2)), recipe.control_variate),
        "dsm": lambda: DSM(recipe.sigma, Enumerated()),
        "bidsm": lambda: BiDSM(recipe.sigma, recipe.unrolled, samples(1)),
        "vages-ksd": lambda: KSD(recipe.bandwidth, Variational(samples(2)), recipe.control_variate),
        "ksd": lambda: KSD(recipe.bandwidth, Enumerated()),
        "is-ksd": lambda: KSD(recipe.bandwidth, Importance(samples(2))),
        "cd": lambda: ContrastiveDivergence(recipe.chain_steps),
        "pcd": lambda: ContrastiveDivergence(recipe.chain_steps, persistent=True),
        "nce": NCE,
        "vnce": lambda: VNCE(samples(5)),
    }[recipe.method]()


def learner_of(recipe: Recipe) -> Learner:
    """The recipe's learner."""
    rate = learning_rate(recipe.learning_rate, decay=recipe.decay, steps=recipe.steps, warmup=recipe.warmup)
    return Learner(
        objective_of(recipe),
        adam(rate, clip=recipe.clip),
        posterior_steps=recipe.posterior_steps,
        ema=recipe.ema,
    )


def parts_of(recipe: Recipe, v_dim: int) -> Callable[[PRNGKeyArray], tuple[GRBM, Posterior]]:
    """A fresh model and posterior for a key; methods that need no variational posterior get the exact one."""

    def make(key: PRNGKeyArray) -> tuple[GRBM, Posterior]:
        for_model, for_posterior = jax.random.split(key)
        posterior = (
            BernoulliPosterior.linear(for_posterior, v_dim, recipe.latents)
            if recipe.method in ("vages-dsm", "vages-ksd", "bidsm", "vnce")
            else ExactPosterior()
        )
        return GRBM.init(for_model, v_dim, recipe.latents), posterior

    return make


def load_data(recipe: Recipe, seed: int) -> Splits:
    """The recipe's data: a toy (a fresh draw a seed), Frey face, or a file of the user's; examples as vectors."""
    if recipe.data in TOYS:
        return load_toy(recipe.data, seed)
    if recipe.data != "freyface" and Path(recipe.data).suffix not in (".npy", ".npz"):
        names = ", ".join((*TOYS, "freyface"))
        raise ValueError(f"data: expected one of {names}, or a .npy or .npz file, got {recipe.data!r}; choose one")
    splits = load_freyface() if recipe.data == "freyface" else load_splits(Path(recipe.data), recipe.seed)
    return Splits(*(part.reshape(len(part), -1) for part in splits))


def load_all_data(recipe: Recipe) -> Splits:
    """The data of all seeds: of a toy one draw for each, along a leading axis; else one array for all of them."""
    if recipe.data not in TOYS:
        return load_data(recipe, recipe.seed)
    draws = [load_data(recipe, recipe.seed + i) for i in range(recipe.seeds)]
    return Splits(*(np.stack(parts) for parts in zip(*draws, strict=True)))


def job_of(recipe: Recipe, *, seeds: int = 0) -> Job:
    """The recipe ready to be timed; `seeds` = 0 is one run without an axis of seeds."""
    data = load_data(recipe, recipe.seed).train
    learner = learner_of(recipe)
    state = init_seeds(learner, range(max(seeds, 1)), parts_of(recipe, data.shape[1]), recipe.batch)
    if not seeds:
        state = one_seed(state)
    return Job(learner, state, jnp.asarray(data), recipe.batch, seeds)
