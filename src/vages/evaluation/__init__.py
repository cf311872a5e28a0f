"""How good a model is: log-likelihood, with log Z exact or annealed, and the score matching loss."""

from vages.evaluation.ais import LogPartition, ais, reverse_ais
from vages.evaluation.likelihood import Estimate, log_likelihood
from vages.evaluation.score_matching import score_matching_loss, sliced_score_matching_loss

__all__ = [
    "Estimate",
    "LogPartition",
    "ais",
    "log_likelihood",
    "reverse_ais",
    "score_matching_loss",
    "sliced_score_matching_loss",
]
