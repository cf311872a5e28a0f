"""q(h | v): variational posteriors, their divergences from the truth, and the corrector of their samples."""

from vages.posteriors.checks import check_contract
from vages.posteriors.corrector import Corrector, langevin_corrector
from vages.posteriors.divergences import Divergence, fisher, has_parameters, kl
from vages.posteriors.exact import ExactPosterior, Listed
from vages.posteriors.latents import (
    Enumerated,
    Importance,
    Latents,
    LatentSource,
    Variational,
    check_latents,
    independent_sets,
    noise_of_sets,
)
from vages.posteriors.learnt import BernoulliPosterior, CategoricalPosterior, GaussianPosterior, Halves, Heads
from vages.posteriors.means import posterior_means
from vages.posteriors.mixed import MixedPosterior
from vages.posteriors.posterior import Posterior, infer

__all__ = [
    "BernoulliPosterior",
    "CategoricalPosterior",
    "Corrector",
    "Divergence",
    "Enumerated",
    "ExactPosterior",
    "GaussianPosterior",
    "Halves",
    "Heads",
    "Importance",
    "LatentSource",
    "Latents",
    "Listed",
    "MixedPosterior",
    "Posterior",
    "Variational",
    "check_contract",
    "check_latents",
    "fisher",
    "has_parameters",
    "independent_sets",
    "infer",
    "kl",
    "langevin_corrector",
    "noise_of_sets",
    "posterior_means",
]
