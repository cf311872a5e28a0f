"""The log-likelihood of examples, from log p̃(v) and log Z."""

import math
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.checks import check_context, check_count, check_inputs, check_kind, check_own_context, check_states
from vages.evaluation.densities import Density, log_density
from vages.evaluation.estimate import Estimate
from vages.evaluation.partition import LogPartition, log_partition
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.samplers import SamplingWarning
from vages.samplers.checks import as_rows, broadcast_context, check_call, check_untraced

LEAST_ESS = 10  # median ESS of the importance weights below which a warning is given

_log_density = eqx.filter_jit(log_density)


class Likelihood(NamedTuple):
    """The mean of log p(v), with the two estimates of log Z: `forward`, which is biased upward, and `reverse`.

    `error` is the standard error of either value: over the examples, whose spread includes the independent noise of
    each log p̃(v), and of log Z. It does not include the gap between the two. If only the mean over examples is
    estimated, `exact` is true and both values are equal.
    """

    forward: float
    reverse: float
    error: float
    exact: bool
    density: Density
    log_partition: LogPartition

    @property
    def mean(self) -> float:
        """The lower of the two values."""
        return min(self.forward, self.reverse)

    def __repr__(self) -> str:
        error, count = f"± {self.error:.2g}", len(self.density.value)
        if self.exact:
            return f"Likelihood: {self.mean:.6g} {error} nats, exact but for the choice of {count} examples"
        if self.density.normalized and not self.log_partition.gap:
            weights = "" if self.density.exact else f"; ESS of the weights {_median(self.density.ess):.3g} on median"
            return f"Likelihood: {self.mean:.6g} {error} nats over {count} examples, log Z = 0 as learnt{weights}"
        said = f"Likelihood: {self.forward:.6g} (log Z forward) and {self.reverse:.6g} (reverse), each {error} nats"
        weights = "" if self.density.exact else f", ESS of the weights {_median(self.density.ess):.3g} on median"
        return f"{said}\n  {count} examples, gap of log Z {self.log_partition.gap:.2g}{weights}"


@jax.default_matmul_precision("float32")  # by default, GPUs and TPUs may use lower precision
def log_likelihood(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior | None,
    v: Array,
    *,
    context: Any = None,
    samples: int = 1000,
    chains: int = 1000,
    temperatures: int = 1000,
    log_z: LogPartition | None = None,
) -> Likelihood:
    """Estimate the mean of log p(v), in nats, over a batch, for models with continuous v or few states of v.

    `samples` draws of h are used for log p̃(v), see `log_density`; `chains` and `temperatures` for log Z, see
    `log_partition`. If log Z is known already, pass it as `log_z`. A normalized model needs none: it was trained to
    have log Z = 0. The posterior may be None if log p̃(v) is exact. `context` has one row, or numbers, shared by all
    examples, because log Z depends on it.
    """
    check_call(key, model)
    check_untraced(key=key, model=model, v=v, context=context)
    check_inputs(model, v)
    context = as_rows(context)
    check_context(context, 1)
    check_own_context(context, model, posterior)
    check_states("v", v, model.v)
    check_count("samples", samples, 2, "a standard error needs two")
    for_density, for_z = jax.random.split(key)
    if log_z is None and model.normalized:
        log_z = LogPartition.known(0.0)
    if log_z is None:
        log_z = log_partition(for_z, model, context=context, chains=chains, temperatures=temperatures)
    check_kind("log_z", log_z, LogPartition, "what log_partition gives", "write LogPartition.known(1.5) for a number")
    how = {"samples": int(samples), "context": broadcast_context(context, len(v))}
    density = _log_density(for_density, model, posterior, v, **how)
    if not density.exact and not _median(density.ess) >= LEAST_ESS:
        warnings.warn(
            f"log_likelihood: the effective sample size of the importance weights is {_median(density.ess):.3g} of "
            f"{samples} on median, expected at least {LEAST_ESS}: log p̃(v) comes out too low; train the posterior "
            "longer or make it richer, or give more samples",
            SamplingWarning,
            stacklevel=3,
        )
    mean, over_examples = Estimate.of(density.value)
    error = math.hypot(over_examples, max(log_z.forward.error, log_z.reverse.error))
    exact = bool(density.exact) and log_z.exact and not model.normalized
    return Likelihood(mean - log_z.forward.value, mean - log_z.reverse.value, error, exact, density, log_z)


def _median(ess: Array) -> float:
    return float(np.median(np.asarray(ess)))
