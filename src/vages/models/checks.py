"""What may go into an estimator, checked at the door: shapes, dtypes, a scalar energy, finite numbers.

Shapes and dtypes are known before anything is computed, under `jit` too. Values are looked at only where
they are already there: under `jit` a non-finite batch is for the caller of the compiled program to find.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from vages.models.eblvm import EBLVM


def check_inputs(model: EBLVM, v, h=None, z=None, weights=None, *, samples: int = 1) -> None:
    """Raise unless v is (batch, *v_shape), h is (batch, L ≥ samples, *h_shape), z is like v, weights (batch, L)."""
    _check_array("v", v, ("batch", *model.v_shape), floating=True)
    if h is not None:
        _check_array("h", h, (v.shape[0], "samples", *model.h_shape), floating=False)
        if h.shape[1] < samples:
            why = " (a covariance needs two)" if samples == 2 else ""
            raise ValueError(
                f"h: expected at least {samples} samples of h for each v{why}, got {h.shape[1]}; draw more"
            )
        _check_scalar(model, v, h)
    if z is not None:
        _check_array("z", z, v.shape, floating=True)
        if z.dtype != v.dtype:
            raise TypeError(f"z: expected the dtype of v, {v.dtype}, got {z.dtype}; cast one of them")
    if weights is not None and h is not None:
        _check_array("weights", weights, h.shape[:2], floating=True)
    for name, array in (("v", v), ("h", h), ("z", z), ("weights", weights)):
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


def _check_array(name: str, array, shape: tuple, *, floating: bool) -> None:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"{name}: expected an array, got {type(array).__name__}; wrap it in jnp.asarray")
    kind = "floating" if floating else "floating, integer or boolean"
    allowed = (jnp.floating,) if floating else (jnp.floating, jnp.integer, jnp.bool_)
    if not any(jnp.issubdtype(array.dtype, dtype) for dtype in allowed):
        raise TypeError(f"{name}: expected a {kind} dtype, got {array.dtype}; cast it, e.g. to float32")
    fits = array.ndim == len(shape) and all(
        isinstance(want, str) or want == got for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits or 0 in array.shape[:1]:
        wanted = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
        hint = "; add the batch axis with x[None]" if array.ndim == len(shape) - 1 and shape[0] == "batch" else ""
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}{hint}")


def _check_scalar(model: EBLVM, v, h) -> None:
    one_v = jax.ShapeDtypeStruct(v.shape[1:], v.dtype)
    one_h = jax.ShapeDtypeStruct(h.shape[2:], h.dtype)
    out = jax.eval_shape(lambda v, h: model.log_joint(model.features(v), h), one_v, one_h)
    if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
        got = f"{out.dtype}{list(out.shape)}" if hasattr(out, "shape") else type(out).__name__
        raise ValueError(
            f"log_joint: expected one floating number for one example (v, h), got {got}; sum the energy over every axis"
        )
