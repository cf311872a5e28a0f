"""Draws from a model: Markov chains as an `init` and a `step`, pure functions of key and state."""

from vages.samplers.gibbs import (
    GibbsNoise,
    GibbsState,
    gibbs_init,
    gibbs_noise,
    gibbs_sample,
    gibbs_step,
    gibbs_transition,
)

__all__ = [
    "GibbsNoise",
    "GibbsState",
    "gibbs_init",
    "gibbs_noise",
    "gibbs_sample",
    "gibbs_step",
    "gibbs_transition",
]
