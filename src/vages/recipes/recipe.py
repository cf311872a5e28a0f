"""What decides a result: data, model, method and its settings. And the learner, model and data they name."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.data import TOYS, Batches, Splits, load_freyface, load_splits, load_toy
from vages.learners import Learner, make_learner
from vages.models import GRBM
from vages.models.grbm import MAX_ENUMERATED
from vages.objectives import DSM, KSD, NCE, VNCE, BiDSM, ContrastiveDivergence, Objective
from vages.optimisers import Decay, learning_rate
from vages.posteriors import BernoulliPosterior, Enumerated, ExactPosterior, Importance, Posterior, Variational
from vages.training import Job, init_seeds, one_seed

Method = Literal["vages-dsm", "dsm", "bidsm", "vages-ksd", "ksd", "is-ksd", "cd", "pcd", "nce", "vnce"]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a result. The defaults are the paper's for the checkerboard."""

    data: str = "checkerboard"
    method: Method = "vages-dsm"
    latents: int = 4
    samples: int | None = None  # L; None: the paper's choice for the method
    posterior_steps: int = 5  # K
    unrolled: int = 5  # N, of BiDSM
    sigma: float = 0.05  # noise level of DSM
    bandwidth: float = 0.1  # of KSD's kernel
    chain_steps: int = 1  # k, of CD and PCD
    control_variate: bool = False
    steps: int = 100_000
    batch: int = 100
    learning_rate: float = 1e-3
    decay: Decay = "constant"  # of the learning rate; a cosine ends at 0
    warmup: int = 0  # iterations over which the learning rate rises to its value
    clip: float | None = None  # the gradient's largest norm
    ema: float | None = None  # decay of the averages of model and posterior, which are then what is evaluated
    seeds: int = 1
    seed: int = 0
    evaluate_every: int = 2000  # iterations
    annealing: int = 2000  # chains and temperatures of AIS, where the latents cannot be enumerated

    def __post_init__(self):
        check_choices(self)
        at_least_one = ("latents", "steps", "batch", "seeds", "evaluate_every", "chain_steps", "annealing")
        least = dict.fromkeys(at_least_one, 1) | {"posterior_steps": 0, "unrolled": 0, "seed": 0, "warmup": 0}
        for name, bound in (least if self.samples is None else least | {"samples": 1}).items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name}: expected at least {bound}, got {getattr(self, name)}")
        if self.seed + self.seeds > 2**32:
            raise ValueError(f"seed: expected seeds below 2**32, got {self.seed} and {self.seeds - 1} after it")
        if self.control_variate and not self.method.startswith("vages"):
            raise ValueError(f"control_variate: expected a method vages-dsm or vages-ksd, got {self.method}")
        for name in ("learning_rate", "sigma", "bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)}")
        check_finite_settings(self)
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


def check_finite_settings(recipe: Any) -> None:
    """Raise where a setting is no finite number, which no file could keep."""
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{field.name}: expected a finite number, got {value}; give one or leave it out")


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
    return make_learner(
        objective_of(recipe),
        learning_rate=learning_rate(recipe.learning_rate, decay=recipe.decay, steps=recipe.steps, warmup=recipe.warmup),
        posterior_steps=recipe.posterior_steps,
        clip=recipe.clip,
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


def check_recipe(recipe: Recipe, data: Splits | None = None) -> None:
    """Raise whatever would be raised at the start of training, before a folder is made for it.

    `data` are those of `load_all_data`, where they have been read already.
    """
    rows, v_dim = (load_all_data(recipe) if data is None else data).train.shape[-2:]
    Batches(rows, recipe.batch, recipe.seed)
    learner_of(recipe)
    model, _ = parts_of(recipe, v_dim)(jax.random.key(0))
    objective_of(recipe).start(jax.random.key(0), model, recipe.batch)


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
