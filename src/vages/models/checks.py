"""What may go into an estimator, checked at the door: shapes, dtypes, a scalar energy, finite numbers.

Shapes and dtypes are known before anything is computed, under `jit` too. Values are looked at only where
they are already there: under `jit` a non-finite batch is for the caller of the compiled program to find.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from vages.domains import Domain
from vages.models.eblvm import EBLVM


def check_inputs(model: EBLVM, v, h=None, z=None, weights=None, *, samples: int = 1) -> None:
    """Raise unless v is (batch, …) and h (batch, L ≥ samples, …) in their domains, z is like v, weights (batch, L)."""
    _check_array("v", v, ("batch", *model.v.shape), floating=True)
    if h is not None:
        _check_array("h", h, (v.shape[0], "samples", *model.h.shape), floating=False)
        check_finite("h", h)
        check_values("h", h, model.h)
        if h.shape[1] < samples:
            why = " (a covariance needs two)" if samples == 2 else ""
            raise ValueError(
                f"h: expected at least {samples} samples of h for each v{why}, got {h.shape[1]}; draw more"
            )
        features = check_features(model, jax.ShapeDtypeStruct(v.shape[1:], v.dtype))
        check_log_joint(model, features, jax.ShapeDtypeStruct(h.shape[2:], h.dtype))
    if z is not None:
        _check_array("z", z, v.shape, floating=True)
        if z.dtype != v.dtype:
            raise TypeError(f"z: expected the dtype of v, {v.dtype}, got {z.dtype}; cast one of them")
    if weights is not None and h is not None:
        _check_array("weights", weights, h.shape[:2], floating=True)
    for name, array in (("v", v), ("z", z), ("weights", weights)):
        if array is not None:
            check_finite(name, array)


def check_finite(name: str, array) -> None:
    """Raise if a concrete array holds NaN or infinity; say where."""
    if isinstance(array, Tracer) or not jnp.issubdtype(array.dtype, jnp.floating):
        return
    finite = np.isfinite(np.asarray(array))
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name}: expected finite numbers, got {np.asarray(array)[where]} at {where} "
            f"({int((~finite).sum())} of {finite.size} entries); clean the data or look for a divergence"
        )


def check_values(name: str, array: Any, domain: Domain) -> None:
    """Raise if concrete values of a discrete variable are not between 0 and 1; relaxed ones are."""
    if domain.continuous or isinstance(array, Tracer):
        return
    values = np.asarray(array)
    if not np.all((values >= 0) & (values <= 1)):
        outside = values[~((values >= 0) & (values <= 1))].flat[0]
        raise ValueError(f"{name}: expected {domain!r}, values from 0 to 1, got {outside:g}; is it {domain!r} indeed?")


def check_numbers(name: str, array: Any, *, floating: bool = True) -> None:
    """Raise unless it is an array of floating numbers, or of any real ones."""
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"{name}: expected an array, got {type(array).__name__}; wrap it in jnp.asarray")
    kind = "floating" if floating else "floating, integer or boolean"
    allowed = (jnp.floating,) if floating else (jnp.floating, jnp.integer, jnp.bool_)
    if not any(jnp.issubdtype(array.dtype, dtype) for dtype in allowed):
        of_bytes = ", or divide bytes by 255" if jnp.issubdtype(array.dtype, jnp.integer) else ""
        raise TypeError(f"{name}: expected a {kind} dtype, got {array.dtype}; cast it with astype('float32'){of_bytes}")


def check_kind(name: str, value: Any, kind: Any, expected: str, advice: str) -> None:
    """Raise unless the value is an instance of `kind`; a class is none of its own."""
    if isinstance(value, type) or not isinstance(value, kind):
        raise TypeError(f"{name}: expected {expected}, got {_called(value)}; {advice}")


def check_features(model: EBLVM, v: Any) -> Any:
    """The features of one v, as shapes and dtypes like v; raise unless the model has them."""
    advice = "write it for one example, without a batch axis, or mend the domain v"
    return on_shapes("features", f"to take one v of shape {v.shape}", advice, model.features, v)


def check_log_joint(model: EBLVM, features: Any, h: Any) -> None:
    """Raise unless log p̃(v, h) = −E(v, h) of one example is one floating number."""
    expected = f"−E(v, h) of one example, v of shape {model.v.shape} and h of shape {h.shape}"
    advice = "write the energy for one example, without a batch axis, or mend the domains"
    log_joint = on_shapes("log_joint", expected, advice, model.log_joint, features, h)
    check_number("log_joint", log_joint, "sum the energy over every axis")


def check_number(name: str, out: Any, advice: str) -> None:
    """Raise unless what a function gives for one example is one floating number."""
    floating = isinstance(out, float) or (hasattr(out, "dtype") and jnp.issubdtype(out.dtype, jnp.floating))
    if not floating or jnp.shape(out) != ():
        raise ValueError(f"{name}: expected one floating number for one example (v, h), got {_called(out)}; {advice}")


def on_shapes(name: str, expected: str, advice: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives, as shapes and dtypes: nothing is computed. What it raises is told in one line."""
    try:
        return eqx.filter_eval_shape(function, *arguments)
    except Exception as error:
        said = (str(error).splitlines() or ["it gave no reason"])[0]
        raise ValueError(f"{name}: expected {expected}, got {type(error).__name__}; {advice}: {said}") from error


def _check_array(name: str, array, shape: tuple, *, floating: bool) -> None:
    check_numbers(name, array, floating=floating)
    fits = array.ndim == len(shape) and all(
        isinstance(want, str) or want == got for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits or 0 in array.shape[:1]:
        wanted = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
        hint = "; add the batch axis with x[None]" if array.ndim == len(shape) - 1 and shape[0] == "batch" else ""
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}{hint}")


def _called(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__
