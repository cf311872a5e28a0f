"""What θ follows: gradients of learning objectives, one file a family."""

from vages.objectives.bism import BiDSM, BiMDSM
from vages.objectives.cd import ContrastiveDivergence
from vages.objectives.dsm import DSM, MDSM, vages_dsm
from vages.objectives.ksd import KSD
from vages.objectives.nce import NCE, VNCE
from vages.objectives.noise import Noised, NoiseRange, perturb
from vages.objectives.objective import Direction, Objective, Problem

__all__ = [
    "DSM",
    "KSD",
    "MDSM",
    "NCE",
    "VNCE",
    "BiDSM",
    "BiMDSM",
    "ContrastiveDivergence",
    "Direction",
    "NoiseRange",
    "Noised",
    "Objective",
    "Problem",
    "perturb",
    "vages_dsm",
]
