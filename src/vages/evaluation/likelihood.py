"""The log-likelihood of examples: log p̃(v) and log Z together."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from vages.checks import check_count, check_inputs, check_kind, check_states
from vages.evaluation.densities import Density, log_density
from vages.evaluation.estimate import Estimate
from vages.evaluation.partition import LogPartition, log_partition
from vages.models import EBLVM
from vages.posteriors import Posterior

_log_density = eqx.filter_jit(log_density)


class Likelihood(NamedTuple):
    """The mean of log p(v), with log Z from below (`forward`, which flatters the model) and from above (`reverse`).

    `error` is the standard error of either: over the examples, of log p̃(v), and of log Z. It says nothing of the gap
    between the two. Where nothing is estimated but the mean over the examples, `exact` is true and both are one.
    """

    forward: float
    reverse: float
    error: float
    exact: bool
    density: Density
    log_partition: LogPartition

    @property
    def mean(self) -> float:
        """The lower of the two."""
        return min(self.forward, self.reverse)


@jax.default_matmul_precision("float32")  # by default, GPUs and TPUs may multiply with far fewer bits
def log_likelihood(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior | None,
    v: Array,
    *,
    samples: int = 1000,
    chains: int = 1000,
    temperatures: int = 1000,
    log_z: LogPartition | None = None,
) -> Likelihood:
    """The mean of log p(v), in nats, over a batch of examples of any model with continuous v, or with few states of v.

    `samples` of h go into log p̃(v), see `log_density`; `chains` and `temperatures` into log Z, see `log_partition`.
    Where it is known already, give it as `log_z`. The posterior may be None where log p̃(v) is exact.
    """
    check_inputs(model, v)
    check_states("v", v, model.v)
    check_count("samples", samples, 2, "a standard error needs two")
    for_density, for_z = jax.random.split(key)
    if log_z is None:
        log_z = log_partition(for_z, model, chains=chains, temperatures=temperatures)
    check_kind("log_z", log_z, LogPartition, "what log_partition gives", "write LogPartition.known(1.5) for a number")
    density = _log_density(for_density, model, posterior, v, samples=int(samples))
    mean, over_examples = Estimate.of(density.value)
    of_density = math.sqrt(float((density.error**2).sum())) / len(v)
    error = math.hypot(over_examples, of_density, max(log_z.forward.error, log_z.reverse.error))
    exact = bool(density.exact) and log_z.exact
    return Likelihood(mean - log_z.forward.value, mean - log_z.reverse.value, error, exact, density, log_z)
