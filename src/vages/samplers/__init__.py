"""Draws from a model: Markov chains as an `init` and a `step`, pure functions of key and state."""

from vages.samplers.annealed import sample_joint, sample_unconditional, sample_v
from vages.samplers.gibbs import (
    GibbsNoise,
    GibbsState,
    gibbs_init,
    gibbs_noise,
    gibbs_sample,
    gibbs_step,
    gibbs_transition,
)
from vages.samplers.langevin import (
    Held,
    LangevinNoise,
    LangevinState,
    Move,
    langevin_init,
    langevin_move,
    langevin_noise,
    langevin_step,
)
from vages.samplers.program import LangevinSamples
from vages.samplers.schedule import Schedule

__all__ = [
    "GibbsNoise",
    "GibbsState",
    "Held",
    "LangevinNoise",
    "LangevinSamples",
    "LangevinState",
    "Move",
    "Schedule",
    "gibbs_init",
    "gibbs_noise",
    "gibbs_sample",
    "gibbs_step",
    "gibbs_transition",
    "langevin_init",
    "langevin_move",
    "langevin_noise",
    "langevin_step",
    "sample_joint",
    "sample_unconditional",
    "sample_v",
]
