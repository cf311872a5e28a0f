"""Learning objectives: a function of a batch, or a subclass of `Objective` with more hooks.

    def objective(key, model, posterior, batch) -> (a scalar whose gradient in the model is followed, metrics)

Metrics are a dict of numbers to log; "loss" is the scalar itself unless the dict has a "loss".
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
    """Examples v (batch, …) and their context: a dict of arrays with as many rows, or None."""

    v: Any  # an array of JAX or NumPy
    context: Any = None


class Points(Protocol):
    """The points at which posterior and model are evaluated. An objective may add its own fields."""

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
        """The weight of each example's divergence in the posterior's steps; None if all are equal."""
        ...


class Data(NamedTuple):
    """The unchanged batch, for objectives that add no noise."""

    v: Array
    context: Any = None
    weight: None = None


class Given(NamedTuple):
    """The inputs of a loss besides model and posterior."""

    batch: Batch  # unchanged
    points: Any  # what `perturb` returned
    encoding: Encoding  # the features at the points, computed once; no gradient flows through them to the model
    extras: Any  # trained with the model
    carry: Any  # carried from batch to batch


class Objective(ABC):
    """The base class of objectives. Only `loss` has no default."""

    unrolled = 0  # posterior steps through which the loss is differentiated, as bi-level score matching does
    closed_form = False  # whether it uses closed forms of the model
    falls = True  # whether its metric "loss" should decrease

    def check(self, model: EBLVM, q: Distribution) -> None:  # noqa: B027
        """Raise unless the objective supports the model and q. No values of q are used."""

    def init(self, key: PRNGKeyArray, model: EBLVM, size: int) -> tuple[Any, Any]:
        """Return, for batches of `size`, extras, which are trained (NCE's constant), and a carry (chains)."""
        return None, None

    def perturb(self, key: PRNGKeyArray, batch: Batch) -> Any:
        """Return the points at which model and posterior are evaluated: a noised batch, or the batch itself."""
        return Data(batch.v, batch.context)

    def encode(self, model: EBLVM, points: Any) -> Encoding:
        """Compute the features at the points, shared by the posterior's steps and the loss."""
        return encode(model, points.v, points.context)

    @abstractmethod
    def loss(
        self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given
    ) -> tuple[Float[Array, ""], Metrics, Any]:
        """Return a scalar whose gradient in model and extras is followed, metrics, and the new carry."""


@dataclass(frozen=True)
class _Plain(Objective):
    """A function (key, model, posterior, batch) -> (scalar, metrics)."""

    function: Callable[..., Any]
    falls = False  # only the gradient of its scalar has a meaning

    def loss(self, key: PRNGKeyArray, model: EBLVM, posterior: Posterior, given: Given) -> tuple[Any, Metrics, Any]:
        out = self.function(key, model, posterior, given.batch)
        if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict)):
            raise TypeError(
                f"objective: expected (scalar, dict of metrics) from the function, got {_called(out)}; "
                'return loss, {"loss": loss}'
            )
        return *out, None


def as_objective(objective: Any) -> Objective:
    """Convert a function to an `Objective`; return an `Objective` unchanged."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, type) or not callable(objective):
        raise TypeError(
            f"objective: expected an Objective, or a function (key, model, posterior, batch), got "
            f"{_called(objective)}; give DSM(0.1), say"
        )
    return _Plain(objective)


def check_points(points: Any, shape: Any) -> None:
    """Raise unless `perturb` returned points v of this shape, one per row, with a context and weights or None."""
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
            f"perturb: expected one weight per row, {points.v.shape[:1]}, got {np.shape(points.weight)}; give None "
            "for equal weights"
        )


def check_start(out: Any) -> Any:
    """Return the output of `init`; raise unless it is (extras, carry)."""
    if not (isinstance(out, tuple | list) and len(out) == 2):
        raise TypeError(
            f"init: expected (extras, carry), got {_called(out)}{f' of {len(out)}' if isinstance(out, tuple) else ''}; "
            "return (extras, None) if nothing is carried over"
        )
    return out


def check_loss(out: Any, carry: Any) -> Any:
    """Return the output of a loss; raise unless it is (scalar, metrics, carry), with one number per metric.

    The new carry must have the structure, shapes and dtypes of the old one, as a compiled loop requires.
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
            f"carry: expected the shapes and dtypes of before, {told(before)}, got {told(after)}; keep them, and "
            "wrap numbers that change in arrays, such as jnp.asarray(0)"
        )
    return out


def check_metric_names(metrics: dict[str, Any], taken: tuple[str, ...]) -> None:
    """Raise if a metric has the name of a number that is always logged, as one would replace the other."""
    for name in taken:
        if name in metrics:
            raise ValueError(f"metrics: expected names other than {', '.join(taken)}, got {name!r}; call it my_{name}")


def _kind(value: Any) -> Any:
    """Return dtype and shape of an array, or any other value unchanged, as a compiled loop cannot change it."""
    if not (hasattr(value, "dtype") and hasattr(value, "shape")):
        return value
    return f"{jax.dtypes.canonicalize_dtype(value.dtype, allow_extended_dtype=True)}{list(value.shape)}"


def frozen(model: Any) -> Any:
    """Return the model with fixed parameters: no gradient flows to them."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, model)


def _called(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
