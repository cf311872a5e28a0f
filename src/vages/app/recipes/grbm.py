"""GRBMs: the learner, model and data that their settings name."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.settings import GRBMSettings
from vages.data import TOYS, Splits, load_freyface, load_splits, load_toy
from vages.models import GRBM
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
from vages.optimizers import adam, learning_rate
from vages.posteriors import BernoulliPosterior, ExactPosterior, Posterior
from vages.training import Job, init_seeds, one_seed
from vages.training.learner import Learner


def objective_of(recipe: GRBMSettings) -> Objective:
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


def learner_of(recipe: GRBMSettings) -> Learner:
    """The recipe's learner."""
    rate = learning_rate(recipe.learning_rate, decay=recipe.decay, steps=recipe.steps, warmup=recipe.warmup)
    return Learner(
        objective_of(recipe),
        adam(rate, clip=recipe.clip),
        posterior_steps=recipe.posterior_steps,
        ema=recipe.ema,
    )


def parts_of(recipe: GRBMSettings, v_dim: int) -> Callable[[PRNGKeyArray], tuple[GRBM, Posterior]]:
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


def load_data(recipe: GRBMSettings, seed: int) -> Splits:
    """The recipe's data: a toy (a fresh draw a seed), Frey face, or a file of the user's; examples as vectors."""
    if recipe.data in TOYS:
        return load_toy(recipe.data, seed)
    if recipe.data != "freyface" and Path(recipe.data).suffix not in (".npy", ".npz"):
        names = ", ".join((*TOYS, "freyface"))
        raise ValueError(f"data: expected one of {names}, or a .npy or .npz file, got {recipe.data!r}; choose one")
    splits = load_freyface() if recipe.data == "freyface" else load_splits(Path(recipe.data), recipe.seed)
    return Splits(*(part.reshape(len(part), -1) for part in splits))


def load_all_data(recipe: GRBMSettings) -> Splits:
    """The data of all seeds: of a toy one draw for each, along a leading axis; else one array for all of them."""
    if recipe.data not in TOYS:
        return load_data(recipe, recipe.seed)
    draws = [load_data(recipe, recipe.seed + i) for i in range(recipe.seeds)]
    return Splits(*(np.stack(parts) for parts in zip(*draws, strict=True)))


def job_of(recipe: GRBMSettings, *, seeds: int = 0) -> Job:
    """The recipe ready to be timed; `seeds` = 0 is one run without an axis of seeds."""
    data = load_data(recipe, recipe.seed).train
    learner = learner_of(recipe)
    state = init_seeds(learner, range(max(seeds, 1)), parts_of(recipe, data.shape[1]), recipe.batch)
    if not seeds:
        state = one_seed(state)
    return Job(learner, state, jnp.asarray(data), recipe.batch, seeds)
