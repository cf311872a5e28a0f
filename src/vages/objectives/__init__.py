"""Learning objectives, one file per family."""

from vages.objectives.bism import BiDSM, BiMDSM
from vages.objectives.cd import ContrastiveDivergence
from vages.objectives.dsm import DSM, MDSM, vages_dsm
from vages.objectives.ksd import KSD
from vages.objectives.latents import Enumerated, Importance, Latents, LatentSource, Marginal, Variational
from vages.objectives.nce import NCE, VNCE
from vages.objectives.noise import Noised, NoiseRange, add_noise, perturb
from vages.objectives.noise_conditional import NoiseConditionalDSM
from vages.objectives.objective import Batch, Data, Given, Metrics, Objective, Points, as_objective, frozen

__all__ = [
    "DSM",
    "KSD",
    "MDSM",
    "NCE",
    "VNCE",
    "Batch",
    "BiDSM",
    "BiMDSM",
    "ContrastiveDivergence",
    "Data",
    "Enumerated",
    "Given",
    "Importance",
    "LatentSource",
    "Latents",
    "Marginal",
    "Metrics",
    "NoiseConditionalDSM",
    "NoiseRange",
    "Noised",
    "Objective",
    "Points",
    "Variational",
    "add_noise",
    "as_objective",
    "frozen",
    "perturb",
    "vages_dsm",
]
