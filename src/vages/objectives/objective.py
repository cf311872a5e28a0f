"""What a learning objective is: a function of a batch, or a class with hooks before it.

    def objective(key, model, posterior, batch) -> (a scalar whose gradient in the model is followed, metrics)

Metrics are a dict of numbers to log; "loss" is the scalar itself unless the dict has another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import told
from vages.distributions import Distribution
from vages.models import EBLVM, Encoding, encode
from vages.posteriors import Posterior

Metrics = dict[str, Array]


class Batch(NamedTuple):
    """Examples v (batch, …), and what they are conditioned on: a dict of arrays with as many rows, or None."""

    v: Any  # an array of JAX or NumPy
    context: Any = None


class Points(Protocol):
    """Where posterior and model meet the data. An objective may add fields of its own."""

    @property
    def v(self) -> Array:
        """A batch of visible variables."""
        ...

    @property
    def context(self) -> Any:
        """Their context, or None."""
        ...

    @property
    def weight(self) -> Float[Array, "batch"] | None:
        """The weight of each example's divergence in the posterior's steps; None where all count alike."""
        ...


class Data(NamedTuple):
    """The batch as it came, for objectives that add no noise."""

    v: Array
    context: Any = None
    weight: None = None


class Given(NamedTuple):
    """All that a loss may look at beside model and posterior."""

    batch: Batch  # as it came
    points: Any  # what `perturb` made of it
    encoding: Encoding  # the features at the points, computed once for all; no gradient flows through them to the model
    extras: Any  # what is trained beside the model
    carry: Any  # what goes from batch to batch


class Objective(ABC):
    """The contract of the families in this room; only `loss` has no default."""

    unrolled = 0  # posterior steps through which the loss is differentiated, as bi-level score matching does
    closed_form = False  # whether it asks the model for closed forms
    falls = True  # whether its metric "loss" is meant to fall

    def check(self, model: EBLVM, q: Distribution) -> None:  # noqa: B027
        """Raise unless the model fits; q is asked for no numbers."""

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[Any, Any]:
        """For batches of `size`: extras, which are trained (NCE's constant), and a carry, which is not (chains)."""
        return None, None

    def perturb(self, key: PRNGKeyArray, batch: Batch) -> Any:
        """Where the model and the posterior are looked at: a noised batch, or the batch itself."""
        return Data(batch.v, batch.context)

    def encode(self, model: EBLVM, points: Any) -> Encoding:
        """The features at the points, which the posterior's steps and the loss share."""
        return encode(model, points.v, points.context)

    @abstractmethod
    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        """A scalar whose gradient in model and extras is followed, metrics, and the new carry."""


@dataclass(frozen=True)
class _Plain(Objective):
    """A function (key, model, posterior, batch) -> (scalar, metrics)."""

    function: Callable[..., Any]
    falls = False  # its scalar may be anything whose gradient is right

    def loss(self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given) -> tuple[Any, Metrics, Any]:
        out = self.function(key, model, posterior, given.batch)
        if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict)):
            raise TypeError(
                f"objective: expected (scalar, dict of metrics) from the function, got {_called(out)}; "
                'return loss, {"loss": loss}'
            )
        return *out, None


def as_objective(objective: Any) -> Objective:
    """An objective as it is, a function as one."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, type) or not callable(objective):
        raise TypeError(
            f"objective: expected an Objective, or a function (key, model, posterior, batch), got "
            f"{_called(objective)}; give DSM(0.1), say"
        )
    return _Plain(objective)


def check_points(points: Any, shape: Any) -> None:
    """Raise unless `perturb` gave points v of this shape, one a row, with a context and weights or None."""
    missing = [name for name in ("v", "context", "weight") if not hasattr(points, name)]
    if missing:
        raise TypeError(
            f"perturb: expected points with v, context and weight, got {_called(points)} without {', '.join(missing)}; "
            "return vages.objectives.Data(v, context), say"
        )
    if points.v.shape[1:] != shape:
        raise ValueError(f"perturb: expected rows of the model's shape {shape}, got {points.v.shape[1:]}; reshape them")

    if points.weight is not None and np.shape(points.weight) != points.v.shape[:1]:
        raise ValueError(
            f"perturb: expected one weight a row, {points.v.shape[:1]}, got {np.shape(points.weight)}; None where all "
            "count alike"
        )


def check_start(out: Any) -> Any:
    """What `init` returned; raise unless it is (extras, carry)."""
    if not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError(
            f"init: expected (extras, carry), got {_called(out)}{f' of {len(out)}' if isinstance(out, tuple) else ''}; "
            "return extras, None where nothing goes from batch to batch"
        )
    return out


def check_loss(out: Any, carry: Any) -> Any:
    """What a loss returned; raise unless it is (scalar, metrics, carry), with one number a metric.

    The new carry must be like the one that the loss was given: in a compiled loop anything else would be lost.
    """
    if not (isinstance(out, tuple) and len(out) == 3 and isinstance(out[1], dict)):
        raise TypeError(
            f"loss: expected (scalar, dict of metrics, carry), got {_called(out)}"
            f"{f' of {len(out)}' if isinstance(out, tuple) else ''}; return loss, {{}}, None"
        )
    check_metric_names(out[1], ("gradient_norm", "step", "seconds"))
    for name, metric in out[1].items():
        if not isinstance(name, str):
            raise TypeError(f"metrics: expected names, got {name!r}; call it {str(name)!r}, say")
        if not (isinstance(metric, int | float | np.generic) or (eqx.is_array(metric) and metric.shape == ())):
            raise ValueError(f"metrics[{name!r}]: expected one number, got {told(_kind(metric))}; take its mean, say")
    before, after = (jax.tree.map(_kind, tree) for tree in (carry, out[2]))
    if before != after:
        raise ValueError(
            f"carry: expected what it was before, {told(before)}, got {told(after)}; keep its shapes and dtypes, and "
            "make numbers that change arrays, jnp.asarray(0) say"
        )
    return out


def check_metric_names(metrics: dict[str, Any], taken: tuple[str, ...]) -> None:
    """Raise where a number has the name of one that is logged anyway: one would replace the other."""
    for name in taken:
        if name in metrics:
            raise ValueError(f"metrics: expected other names than {', '.join(taken)}, got {name!r}; call it my_{name}")


def _kind(value: Any) -> Any:
    """The dtype and shape of an array; anything else as it is, which a compiled loop cannot change."""
    if not (hasattr(value, "dtype") and hasattr(value, "shape")):
        return value
    return f"{jax.dtypes.canonicalize_dtype(value.dtype, allow_extended_dtype=True)}{list(value.shape)}"


def frozen(model: Any) -> Any:
    """The model with its parameters held fixed: no gradient flows to them."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, model)


def _called(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
