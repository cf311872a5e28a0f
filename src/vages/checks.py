"""Checks of arguments: numbers, arrays, models and contexts.

Every error is one line: `name: expected …, got …; what to do`. Shapes and dtypes are checked before anything is
computed, also under `jit`. Values are checked only if they are concrete: the caller of a compiled program has to check
for non-finite batches. Models and domains are duck-typed.
"""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

SQUARED = (1.1e-19, 1.8e19)  # bounds of numbers whose squares neither overflow nor underflow in float32


def check_inputs(
    model: Any,
    v: Any,
    h: Any = None,
    z: Any = None,
    weights: Any = None,
    *,
    samples: int = 1,
    context: Any = None,
    features: Any = None,
) -> None:
    """Raise unless v (batch, …) and h (batch, L ≥ samples, …) fit their domains, z is like v and weights (batch, L).

    `features` are those of the batch, if they are already computed.
    """
    check_model(model)
    _check_array("v", v, ("batch", *model.v.shape), floating=True)
    check_context(context, v.shape[0])
    if h is not None:
        for name, array, domain in named_parts("h", h, model.h):
            _check_array(name, array, (v.shape[0], "samples", *domain.shape), floating=False)
            check_finite(name, array)
            check_values(name, array, domain)
        counts = {array.shape[1] for array in jax.tree.leaves(h)}
        if len(counts) > 1:
            raise ValueError(f"h: expected as many samples of every latent, got {sorted(counts)}; draw them together")
        if (count := counts.pop()) < samples:
            why = " (a covariance needs two)" if samples == 2 else ""
            raise ValueError(f"h: expected at least {samples} samples of h for each v{why}, got {count}; draw more")
        one = lambda x: struct_of(x, drop=1) if hasattr(x, "dtype") else x
        of_one = check_features(model, *shapes_of_one(v, context)) if features is None else jax.tree.map(one, features)
        check_log_joint(model, of_one, jax.tree.map(lambda x: struct_of(x, drop=2), h), context)
        if weights is not None:
            _check_array("weights", weights, (v.shape[0], count), floating=True)
            _check_sums(weights)
    if z is not None:
        check_like("z", z, "v", v)
    for name, array in (("v", v), ("weights", weights)):
        if array is not None:
            check_finite(name, array)


def check_like(name: str, array: Any, other: str, like: Any) -> None:
    """Raise unless an array has the shape and the dtype of another, and is finite."""
    _check_array(name, array, like.shape, floating=True)
    if jax.dtypes.canonicalize_dtype(array.dtype) != jax.dtypes.canonicalize_dtype(like.dtype):
        raise TypeError(f"{name}: expected the dtype of {other}, {like.dtype}, got {array.dtype}; cast one of them")
    check_finite(name, array)


def check_context(context: Any, rows: int | None, *, seeds: int | None = None) -> None:
    """Raise unless the context is None or a dict of arrays with a row for each example.

    With `seeds`, arrays have the leading axes (seeds, rows). If `rows` is None, any number of rows is accepted.
    """
    if context is None:
        return
    if not isinstance(context, dict) or not context or not all(isinstance(key, str) for key in context):
        got = _called(context) if not isinstance(context, dict) else f"the names {told(list(context))}"
        raise TypeError(
            f"context: expected a dict of arrays, {{'label': labels}} say, got {got}; leave it out for none"
        )
    for key, array in context.items():
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"context[{key!r}]: expected an array, got {_called(array)}; wrap it in jnp.asarray")
        check_byte_order(f"context[{key!r}]", array)
        lead = (rows,) if seeds is None else (seeds, rows)
        if array.shape[: len(lead)] != lead if rows is not None else not array.shape:
            many = "" if seeds is None else f"{seeds} times "
            raise ValueError(
                f"context[{key!r}]: expected {many}{rows or ''} rows, one for each example, got shape {array.shape}; "
                "give one row per example"
            )


def check_own_context(context: Any, *parts: Any) -> None:
    """Call the `check_context` of each model or posterior that has one."""
    for part in parts:
        if hasattr(part, "check_context"):
            part.check_context(context)


def struct_of(x: Any, *lead: int, drop: int = 0) -> jax.ShapeDtypeStruct:
    """Return the shape of an array, its first `drop` axes replaced by `lead`, and the dtype that JAX computes with.

    Without 64-bit mode, JAX converts NumPy's float64 to float32, and warns about shapes that declare float64.
    """
    extended = jnp.issubdtype(x.dtype, jax.dtypes.extended)  # the dtype of a random key
    dtype = x.dtype if extended else jax.dtypes.canonicalize_dtype(x.dtype)
    return jax.ShapeDtypeStruct((*lead, *x.shape[drop:]), dtype)


def shapes_of_one(v: Any, context: Any) -> tuple[Any, ...]:
    """Return shapes and dtypes of one example of a batch, (v,) or (v, context)."""
    one = lambda x: struct_of(x, drop=1)
    return (one(v),) if context is None else (one(v), jax.tree.map(one, context))


def named_parts(name: str, value: Any, domain: Any) -> list[tuple[str, Any, Any]]:
    """Return (name, array, domain) of a value, or of each entry if the domain is a dict."""
    if not hasattr(domain, "parts"):
        return [(name, value, domain)]
    wanted = dict(domain.parts)
    if not isinstance(value, dict) or set(value) != set(wanted):
        got = sorted(value) if isinstance(value, dict) else _called(value)
        raise TypeError(f"{name}: expected a dict with {sorted(wanted)}, got {got}; its domain is {domain!r}")
    return [(f"{name}[{key!r}]", value[key], wanted[key]) for key in wanted]


def check_finite(name: str, array) -> None:
    """Raise if a concrete array holds NaN, infinity, or a number that overflows in JAX's precision, and say where."""
    if isinstance(array, Tracer) or not jnp.issubdtype(array.dtype, jnp.floating):
        return
    finite = finite_entries(values := np.asarray(array))
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        expected, advice = "finite numbers", "clean the data or look for a divergence"
        if np.isfinite(values[where]):
            dtype = jax.dtypes.canonicalize_dtype(values.dtype)
            expected = f"numbers of at most {jnp.finfo(dtype).max:.2g}, as {dtype} has no larger ones"
            advice = "standardize the data, or divide them by a constant"
        raise ValueError(
            f"{name}: expected {expected}, got {values[where]} at {where} "
            f"({int((~finite).sum())} of {finite.size} entries); {advice}"
        )


def finite_entries(array: np.ndarray) -> np.ndarray:
    """Return which numbers are finite in JAX's precision: float32 for float64 arrays, unless 64-bit mode is on."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return np.asarray(np.isfinite(array) if dtype == array.dtype else np.abs(array) <= float(jnp.finfo(dtype).max))


def check_values(name: str, array: Any, domain: Any) -> None:
    """Raise unless concrete values of a discrete variable, relaxed or not, are between 0 and 1."""
    if domain.continuous or isinstance(array, Tracer):
        return
    values = np.asarray(array)
    if not np.all((values >= 0) & (values <= 1)):
        outside = values[~((values >= 0) & (values <= 1))].flat[0]
        raise ValueError(f"{name}: expected {domain!r}, values from 0 to 1, got {outside:g}; check the domain")


def check_states(name: str, array: Any, domain: Any) -> None:
    """Raise unless concrete values of a discrete variable are 0 or 1, with exactly one 1 per row if categorical."""
    if domain.continuous or isinstance(array, Tracer):
        return
    values = np.asarray(array)
    chosen = type(domain).__name__ == "Categorical"
    if not np.all((values == 0) | (values == 1)) or (chosen and not np.all(values.sum(axis=-1) == 1)):
        kind = "one 1 in each row, and zeros" if chosen else "zeros and ones"
        raise ValueError(f"{name}: expected {domain!r}, {kind}, got {told(values)}; round or redraw it")


def check_numbers(name: str, array: Any, *, floating: bool = True) -> None:
    """Raise unless this is a floating-point array, or without `floating` also an integer or boolean one."""
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TypeError(f"{name}: expected an array, got {type(array).__name__}; wrap it in jnp.asarray")
    kind = "floating" if floating else "floating, integer or boolean"
    allowed = (jnp.floating,) if floating else (jnp.floating, jnp.integer, jnp.bool_)
    if not any(jnp.issubdtype(array.dtype, dtype) for dtype in allowed):
        of_bytes = ", or divide bytes by 255" if jnp.issubdtype(array.dtype, jnp.integer) else ""
        raise TypeError(f"{name}: expected a {kind} dtype, got {array.dtype}; cast it with astype('float32'){of_bytes}")
    check_byte_order(name, array)


def check_byte_order(name: str, array: Any) -> None:
    """Raise TypeError if the bytes of an array are not in the machine's order, which JAX needs."""
    if not getattr(getattr(array, "dtype", None), "isnative", True):  # lists, and the dtypes of keys, have no order
        native = array.dtype.newbyteorder("=")
        raise TypeError(
            f"{name}: expected numbers in the machine's byte order, got {array.dtype.str}; write x.astype('{native}')"
        )


def check_kind(name: str, value: Any, kind: Any, expected: str, advice: str) -> None:
    """Raise TypeError unless the value is an instance of `kind`. Classes are refused."""
    if isinstance(value, type) or not isinstance(value, kind):
        raise TypeError(f"{name}: expected {expected}, got {_called(value)}; {advice}")


def check_model(model: Any) -> None:
    """Raise TypeError unless this has the attributes of a model: the domain v, and `log_joint`."""
    if isinstance(model, type) or not (hasattr(model, "log_joint") and hasattr(model, "v")):
        advice = "write EnergyModel(energy, params, v=…, h=…) for a function; the model comes before the posterior"
        raise TypeError(f"model: expected an EBLVM, got {_called(model)}; {advice}")


def check_has_score(name: str, model: Any) -> None:
    """Raise TypeError if v is discrete and thus has no ∇_v."""
    check_model(model)
    if not model.v.continuous:
        raise TypeError(f"{name}: expected continuous v, which has a score, got {model.v!r}; write v=Real(…) if it is")


def check_features(model: Any, v: Any, context: Any = None) -> Any:
    """Return shapes and dtypes of the features of one v; raise if the model cannot compute them."""
    advice = "write it for one example, without a batch axis, or correct the domain v"
    if context is None:
        return on_shapes("features", f"to take one v of shape {v.shape}", advice, model.features, v)
    expected = f"to take one v of shape {v.shape}{with_keys(context)}"
    return on_shapes("features", expected, "is the model made for this context?", model.features, v, context)


def check_log_joint(model: Any, features: Any, h: Any, context: Any = None) -> None:
    """Raise unless log p̃(v, h) = −E(v, h) of one example is a floating-point scalar."""
    shape = jax.tree.map(lambda x: x.shape, h)
    expected = f"−E(v, h) of one example, v of shape {model.v.shape} and h of shape {shape}{with_keys(context)}"
    advice = "write the energy for one example, without a batch axis, or correct the domains"
    if not model.h.size:
        advice += "; it is given an h, too, which is empty where there are no latents"
    log_joint = on_shapes("log_joint", expected, advice, model.log_joint, features, h)
    check_number("log_joint", log_joint, "sum the energy over every axis")


def check_energy(model: Any, dtype: Any, context: Any = None) -> None:
    """Raise unless log p̃(v, h) of one example is a floating-point scalar. A context has a row for each example."""
    v = jax.ShapeDtypeStruct(model.v.shape, jax.dtypes.canonicalize_dtype(dtype))
    of_one = jax.tree.map(lambda x: struct_of(x, drop=1), context)
    check_log_joint(model, check_features(model, v, of_one), model.h.struct(v.dtype), context)


def with_keys(context: Any) -> str:
    """Describe the entries of a context, for a message."""
    return "" if context is None else f" and a context with {', '.join(sorted(context))}"


def check_number(name: str, out: Any, advice: str, of: str = "for one example (v, h)") -> None:
    """Raise unless the output of a function is a floating-point scalar."""
    floating = isinstance(out, float) or (hasattr(out, "dtype") and jnp.issubdtype(out.dtype, jnp.floating))
    if not floating or jnp.shape(out) != ():
        raise ValueError(f"{name}: expected one floating number {of}, got {_called(out)}; {advice}")


def on_shapes(name: str, expected: str, advice: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return shapes and dtypes of a function's output, without computing it. Its errors are reported in one line."""
    try:
        return eqx.filter_eval_shape(function, *arguments)
    except Exception as error:
        said = (str(error).splitlines() or ["it gave no reason"])[0]
        raise ValueError(f"{name}: expected {expected}, got {type(error).__name__}; {advice}: {said}") from error


def _check_sums(weights: Any) -> None:
    """Raise if concrete weights are negative or do not sum to 1. NaNs are reported by `check_finite`."""
    if isinstance(weights, Tracer):
        return
    values = np.asarray(weights, np.float64)
    if np.any(values < 0):
        raise ValueError(
            f"weights: expected probabilities, got {values.min():.6g}; take jax.nn.softmax of log-weights, say"
        )
    sums = np.sum(values, axis=1)
    if np.any(wrong := np.abs(sums - 1) > 1e-3):
        row = int(np.argmax(wrong))
        raise ValueError(
            f"weights: expected rows that sum to 1, got {sums[row]:.6g} in row {row}; divide by their sums, or take "
            "jax.nn.softmax of log-weights"
        )


def _check_array(name: str, array, shape: tuple, *, floating: bool) -> None:
    check_numbers(name, array, floating=floating)
    fits = array.ndim == len(shape) and all(
        isinstance(want, str) or want == got for want, got in zip(shape, array.shape, strict=True)
    )
    if not fits or 0 in array.shape[:1]:
        wanted = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
        advice = "give at least one example" if fits else "reshape it"
        if array.ndim == len(shape) - 1 and shape[0] == "batch":
            advice = "add the batch axis with x[None]"
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}; {advice}")


def _called(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__


def check_rows(name: str, array: Any, columns: int | None = None) -> None:
    """Raise unless this is an array of finite numbers, a row for each example, and `columns` columns if given."""
    check_numbers(name, array, floating=False)
    if array.ndim != 2 or columns not in (None, array.shape[1]):
        raise ValueError(f"{name}: expected shape (n, {columns or 'd'}), got {array.shape}; give one row per example")
    check_some(name, array)
    check_finite(name, array)


def check_classes(name: str, labels: Any, rows: int) -> None:
    """Raise unless these are the numbers of classes, 0 or more, one for each row."""
    advice = "give the class of each example, counted from 0"
    if not hasattr(labels, "dtype"):
        check_numbers(name, labels)
    if labels.shape != (rows,) or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"{name}: expected integers of shape ({rows},), got {_called(labels)}; {advice}")
    if rows and labels.min() < 0:
        raise ValueError(f"{name}: expected 0 or more, got {labels.min()}; {advice}")


def check_some(name: str, array: Any) -> None:
    """Raise ValueError unless an array has at least one row."""
    if not len(array):
        raise ValueError(f"{name}: expected at least one example, got shape {np.shape(array)}; give more")


def check_count(name: str, count: Any, least: int, advice: str) -> None:
    """Raise unless this is an integer, of Python or NumPy, of at least `least`."""
    if not (isinstance(count, int | np.integer) and count >= least):
        raise ValueError(f"{name}: expected at least {least}, a whole number, got {told(count)}; {advice}")


def check_positive(name: str, value: Any, kind: str, advice: str) -> None:
    """Raise unless this is a finite number above 0. `kind` describes it in the error."""
    if not (is_finite(value) and value > 0):
        raise ValueError(f"{name}: expected a finite {kind} above 0, got {told(value)}; {advice}")


def check_scale(name: str, value: Any, kind: str, advice: str) -> None:
    """Raise unless this is a finite number above 0 whose square neither overflows nor underflows in float32."""
    check_positive(name, value, kind, advice)
    least, most = SQUARED
    if not least <= float(value) <= most:
        raise ValueError(
            f"{name}: expected a {kind} from {least:g} to {most:g}, whose square is a float32 number, got "
            f"{told(value)}; {advice}"
        )


def is_finite(value: Any) -> bool:
    """Whether this is a finite real scalar of Python, NumPy or JAX."""
    return (isinstance(value, Real) or getattr(value, "shape", None) == ()) and math.isfinite(value)


def told(value: Any) -> str:
    """Format a value on one line of at most 80 characters."""
    return " ".join(repr(value).split())[:80]
