"""Draws from a model: Markov chains as an `init` and a `step`, pure functions of key and state."""

from vages.samplers.annealed import sample_joint, sample_unconditional, sample_v
from vages.samplers.gibbs import (
    GibbsState,
    gibbs_init,
    gibbs_sample,
    gibbs_step,
)
from vages.samplers.langevin import (
    Held,
    LangevinState,
    Move,
    langevin_init,
    langevin_move,
    langevin_step,
)
from vages.samplers.program import LangevinSamples
from vages.samplers.schedule import Schedule

__all__ = [
    "GibbsState",
    "Held",
    "LangevinSamples",
    "LangevinState",
    "Move",
    "Schedule",
    "gibbs_init",
    "gibbs_sample",
    "gibbs_step",
    "langevin_init",
    "langevin_move",
    "langevin_step",
    "sample_joint",
    "sample_unconditional",
    "sample_v",
]
