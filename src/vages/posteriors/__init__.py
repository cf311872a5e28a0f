"""Posteriors q(h | v), their divergences from p(h | v), and a corrector of their samples."""

from vages.posteriors.checks import check_contract
from vages.posteriors.conditioned import Conditioned
from vages.posteriors.corrector import Corrector, langevin_corrector
from vages.posteriors.divergences import Divergence, fisher, kl
from vages.posteriors.exact import ExactPosterior, Listed
from vages.posteriors.features import FeaturePosterior
from vages.posteriors.learnt import (
    BernoulliPosterior,
    CategoricalPosterior,
    GaussianPosterior,
    Halves,
    Heads,
    JointPosterior,
)
from vages.posteriors.means import posterior_means
from vages.posteriors.mixed import MixedPosterior
from vages.posteriors.posterior import Posterior, has_parameters, infer

__all__ = [
    "BernoulliPosterior",
    "CategoricalPosterior",
    "Conditioned",
    "Corrector",
    "Divergence",
    "ExactPosterior",
    "FeaturePosterior",
    "GaussianPosterior",
    "Halves",
    "Heads",
    "JointPosterior",
    "Listed",
    "MixedPosterior",
    "Posterior",
    "check_contract",
    "fisher",
    "has_parameters",
    "infer",
    "kl",
    "langevin_corrector",
    "posterior_means",
]
