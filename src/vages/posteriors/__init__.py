"""q(h | v): variational posteriors, their divergences from the truth, and the corrector of their samples."""

from vages.posteriors.corrector import langevin_corrector
from vages.posteriors.divergences import Divergence, fisher, has_parameters, kl
from vages.posteriors.latents import Enumerated, Importance, Latents, LatentSource, Variational
from vages.posteriors.learnt import BernoulliPosterior, GaussianPosterior, Heads
from vages.posteriors.posterior import ExactPosterior, Posterior, infer

__all__ = [
    "BernoulliPosterior",
    "Divergence",
    "Enumerated",
    "ExactPosterior",
    "GaussianPosterior",
    "Heads",
    "Importance",
    "LatentSource",
    "Latents",
    "Posterior",
    "Variational",
    "fisher",
    "has_parameters",
    "infer",
    "kl",
    "langevin_corrector",
]
