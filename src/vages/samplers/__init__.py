"""Sampling from models. Gibbs and Langevin chains are an `init` and a `step`, pure functions of key and state."""

from vages.samplers.annealed import Annealed, sample_joint, sample_unconditional, sample_v
from vages.samplers.gibbs import (
    Gibbs,
    GibbsState,
    gibbs_init,
    gibbs_sample,
    gibbs_step,
)
from vages.samplers.heun import Heun
from vages.samplers.interpolation import interpolate, slerp
from vages.samplers.langevin import (
    Held,
    LangevinState,
    Move,
    langevin_init,
    langevin_move,
    langevin_step,
)
from vages.samplers.mcmc import MCMC
from vages.samplers.program import LangevinSamples
from vages.samplers.sample import Sampler, sample, sample_posterior
from vages.samplers.samples import Samples, SamplingWarning
from vages.samplers.schedule import Schedule

__all__ = [
    "MCMC",
    "Annealed",
    "Gibbs",
    "GibbsState",
    "Held",
    "Heun",
    "LangevinSamples",
    "LangevinState",
    "Move",
    "Sampler",
    "Samples",
    "SamplingWarning",
    "Schedule",
    "gibbs_init",
    "gibbs_sample",
    "gibbs_step",
    "interpolate",
    "langevin_init",
    "langevin_move",
    "langevin_step",
    "sample",
    "sample_joint",
    "sample_posterior",
    "sample_unconditional",
    "sample_v",
    "slerp",
]
