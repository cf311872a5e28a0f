"""q(h | v): variational posteriors, their divergences from the truth, and the corrector of their samples."""

from vages.posteriors.corrector import langevin_corrector
from vages.posteriors.divergences import Divergence, fisher, kl
from vages.posteriors.learnt import BernoulliPosterior, GaussianPosterior, Heads
from vages.posteriors.posterior import ExactPosterior, Posterior, infer

__all__ = [
    "BernoulliPosterior",
    "Divergence",
    "ExactPosterior",
    "GaussianPosterior",
    "Heads",
    "Posterior",
    "fisher",
    "infer",
    "kl",
    "langevin_corrector",
]
