"""Evaluation of models: likelihood, score matching loss, Fisher divergence, Stein tests, posterior gap, FID."""

from vages.evaluation.ais import LogEstimate, ais, reverse_ais
from vages.evaluation.bits import bits_per_dim
from vages.evaluation.critic import LatentCritic, MLPCritic
from vages.evaluation.critic_training import CriticTraining
from vages.evaluation.densities import Density, log_density
from vages.evaluation.estimate import Estimate
from vages.evaluation.features import Moments, feature_moments, images_digest
from vages.evaluation.fid import KID, Extrapolation, extrapolate, extrapolated_fid, fid, kid, metric_name
from vages.evaluation.fisher import FisherDivergence, fisher_divergence
from vages.evaluation.flow_likelihood import FlowLikelihood, flow_likelihood
from vages.evaluation.gaussian import gaussian_log_density
from vages.evaluation.inception import Inception, inception_file, install_inception, load_inception
from vages.evaluation.kernels import IMQ, RBF, median_distance
from vages.evaluation.learned_stein import learned_stein_test
from vages.evaluation.likelihood import Likelihood, log_likelihood
from vages.evaluation.nearest import Nearness, nearness
from vages.evaluation.normalization import LevelNormalizer, level_normalizers
from vages.evaluation.out_of_distribution import OutOfDistribution, auroc, out_of_distribution, typicality
from vages.evaluation.partition import LogPartition, log_partition
from vages.evaluation.pixels import Gray, as_pixels
from vages.evaluation.posterior_gap import PosteriorGap, kl_divergence, posterior_gap
from vages.evaluation.probe import Probe, linear_probe, logistic_regression, majority_rate
from vages.evaluation.score_matching import score_matching_loss, sliced_score_matching_loss
from vages.evaluation.scores import ExactScore, Score, VariationalScore, score, score_batch
from vages.evaluation.statistics import PREPROCESSING, Statistics, cache_key, load_statistics
from vages.evaluation.stein import SteinTest, ksd_test

__all__ = [
    "IMQ",
    "KID",
    "PREPROCESSING",
    "RBF",
    "CriticTraining",
    "Density",
    "Estimate",
    "ExactScore",
    "Extrapolation",
    "FisherDivergence",
    "FlowLikelihood",
    "Gray",
    "Inception",
    "LatentCritic",
    "LevelNormalizer",
    "Likelihood",
    "LogEstimate",
    "LogPartition",
    "MLPCritic",
    "Moments",
    "Nearness",
    "OutOfDistribution",
    "PosteriorGap",
    "Probe",
    "Score",
    "Statistics",
    "SteinTest",
    "VariationalScore",
    "ais",
    "as_pixels",
    "auroc",
    "bits_per_dim",
    "cache_key",
    "extrapolate",
    "extrapolated_fid",
    "feature_moments",
    "fid",
    "fisher_divergence",
    "flow_likelihood",
    "gaussian_log_density",
    "images_digest",
    "inception_file",
    "install_inception",
    "kid",
    "kl_divergence",
    "ksd_test",
    "learned_stein_test",
    "level_normalizers",
    "linear_probe",
    "load_inception",
    "load_statistics",
    "log_density",
    "log_likelihood",
    "log_partition",
    "logistic_regression",
    "majority_rate",
    "median_distance",
    "metric_name",
    "nearness",
    "out_of_distribution",
    "posterior_gap",
    "reverse_ais",
    "score",
    "score_batch",
    "score_matching_loss",
    "sliced_score_matching_loss",
    "typicality",
]
