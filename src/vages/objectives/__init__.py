"""What θ follows: gradients of learning objectives, one file a family."""

from vages.objectives.bism import BiDSM
from vages.objectives.cd import ContrastiveDivergence
from vages.objectives.dsm import DSM, Noised, perturb, vages_dsm
from vages.objectives.ksd import KSD
from vages.objectives.nce import NCE, VNCE
from vages.objectives.objective import Direction, Objective, Problem

__all__ = [
    "DSM",
    "KSD",
    "NCE",
    "VNCE",
    "BiDSM",
    "ContrastiveDivergence",
    "Direction",
    "Noised",
    "Objective",
    "Problem",
    "perturb",
    "vages_dsm",
]
