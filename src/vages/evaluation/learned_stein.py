"""The learned Stein discrepancy as a goodness-of-fit test (Grathwohl et al. 2020), with VaES for models with latents.

If the model is correct, sᵀf + εᵀ(∂f/∂v)ε has mean 0 for every critic f. A critic is trained on one part of the examples
to make this mean large. The mean over another part, divided by its standard error, is then standard normal.
"""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from scipy.special import ndtr

from vages.distributions import check_key
from vages.evaluation.critic_training import CriticTraining, SteinTerms
from vages.evaluation.estimate import Estimate
from vages.evaluation.fisher import LEAST, evaluate_critic, train_critic, with_settings
from vages.evaluation.scores import Score, check_examples
from vages.evaluation.stein import SteinTest
from vages.samplers.program import Progress

PARTS = (0.5, 0.1, 0.4)  # fractions of the examples for training, for choosing the critic, and for the test


def learned_stein_test(
    key: PRNGKeyArray,
    score: Score,
    v: Array,
    *,
    critic: Any = None,
    how: CriticTraining | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> SteinTest:
    """Test whether independent examples come from the model with this score.

    Half of them, in random order, are used to train the critic, a tenth to choose the iteration with the most test
    power, and the rest for the test. The arguments are those of `fisher_divergence`.
    """
    check_key(key)
    check_examples("v", v, math.ceil(LEAST / min(PARTS)))
    for_order, for_training, for_test = jax.random.split(key, 3)
    shuffled = v[jax.random.permutation(for_order, len(v))]
    cuts = np.cumsum([math.ceil(part * len(v)) for part in PARTS[:2]])
    train, validation, test = shuffled[: cuts[0]], shuffled[cuts[0] : cuts[1]], shuffled[cuts[1] :]
    trained = train_critic(
        for_training,
        score,
        train,
        validation,
        critic=critic,
        how=with_settings(how, settings),
        progress=progress,
        merit=power,
    )
    mean, error = Estimate.of(evaluate_critic(for_test, trained.best, trained, test).stein)
    p_value = float(ndtr(-mean / error)) if error > 0 else 1.0
    return SteinTest("learned", mean, error, p_value, len(test))


def power(terms: SteinTerms) -> float:
    """Return mean / standard deviation, which determines the power of the test; 0 for a critic of zeros."""
    stein = np.asarray(terms.stein, np.float64)
    return float(stein.mean() / max(stein.std(), np.finfo(np.float64).tiny))
