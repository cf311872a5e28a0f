"""The log-likelihood of examples, with log Z computed once."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_inputs
from vages.evaluation.ais import LogPartition, ais
from vages.models import GRBM, TractableEBLVM
from vages.models.grbm import MAX_ENUMERATED

_BLOCK = 1024  # examples evaluated together, which bounds the memory


class Estimate(NamedTuple):
    """A mean over examples and its standard error."""

    mean: float
    error: float

    @staticmethod
    def of(values: Float[Array, "examples"]) -> "Estimate":
        """Of independent values, in float64. One value alone has an infinite error."""
        exact = np.asarray(values, np.float64)
        error = exact.std(ddof=1) / math.sqrt(len(exact)) if len(exact) > 1 else math.inf
        return Estimate(float(exact.mean()), float(error))


@jax.default_matmul_precision("float32")  # by default, GPUs and TPUs may multiply with far fewer bits
def log_likelihood(
    model: TractableEBLVM,
    v: Array,
    log_partition: LogPartition | Array | float | None = None,
    *,
    key: PRNGKeyArray | None = None,
) -> Estimate:
    """The mean of log p(v) over a batch of examples.

    Without `log_partition`, log Z is exact where the model allows it; a GRBM with more latent units than can be
    enumerated takes a `key` for `ais`. The standard error is that over the examples; where log Z is an estimate, its
    error is counted too.
    """
    check_inputs(model, v)
    log_z, error = _log_partition(model, key) if log_partition is None else _value_and_error(log_partition)
    free_energy = Estimate.of(_free_energies(model, v))
    return Estimate(-free_energy.mean - log_z, math.hypot(free_energy.error, error))


def _log_partition(model: TractableEBLVM, key: PRNGKeyArray | None) -> tuple[float, float]:
    if not isinstance(model, GRBM):
        return _value_and_error(model.log_partition())
    (h_dim,) = model.h.shape
    if h_dim <= MAX_ENUMERATED:
        return _value_and_error(_enumerated(model))
    if key is None:
        raise ValueError(
            f"key: expected a key for AIS, because the model has more than {MAX_ENUMERATED} latent units ({h_dim}), "
            "got None; give a key, or log_partition"
        )
    return _value_and_error(ais(key, model))


def _value_and_error(log_partition: LogPartition | Array | float) -> tuple[float, float]:
    if isinstance(log_partition, LogPartition):
        return log_partition.value, log_partition.error
    return float(log_partition), 0.0


@eqx.filter_jit
def _enumerated(model: GRBM) -> Float[Array, ""]:
    return model.log_partition()


@eqx.filter_jit
def _free_energies(model: TractableEBLVM, v: Array) -> Float[Array, "batch"]:
    return jax.lax.map(model.free_energy, v, batch_size=min(_BLOCK, len(v)))
