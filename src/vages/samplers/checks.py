"""Checks of the arguments of samplers."""

from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from vages.checks import (
    check_byte_order,
    check_context,
    check_count,
    check_finite,
    check_has_score,
    check_inputs,
    check_kind,
    check_numbers,
    check_states,
    named_parts,
)
from vages.distributions import check_key
from vages.domains import Categorical, Domain, Product
from vages.models import EBLVM
from vages.samplers.langevin import Held
from vages.samplers.program import Run


def check_call(key: Any, model: Any) -> None:
    """Raise unless these are a key and a model."""
    check_key(key)
    check_kind("model", model, EBLVM, "a model", "the key comes first, then the model")


def check_untraced(**arguments: Any) -> None:
    """Raise if an argument is traced, as inside `jit`, `vmap` or `grad`."""
    for name, value in arguments.items():
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
            raise TypeError(
                f"{name}: expected concrete values, got a traced one; call this outside jit, vmap and grad, as it "
                "compiles its own programs"
            )


def as_rows(context: Any) -> Any:
    """Return a context with its numbers as arrays of one row. Everything else is unchanged."""
    if not isinstance(context, dict):
        return context
    number = lambda x: isinstance(x, Real) or getattr(x, "shape", None) == ()
    return {name: jnp.asarray(x)[None] if number(x) else x for name, x in context.items()}


def broadcast_context(context: Any, n: int) -> Any:
    """Broadcast a context of one row, or of n rows, to n rows."""
    one = isinstance(context, dict) and {np.shape(x)[:1] for x in context.values()} <= {(1,)}
    if context:
        check_context(context, 1 if one else n)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape[1:])), context)


def check_rows(model: EBLVM, h: Any, n: int) -> None:
    """Raise unless h has finite values in its domain, in one row or in n rows."""
    for name, value, domain in named_parts("h", h, model.h):
        check_numbers(name, value, floating=False)
        if value.shape[1:] != domain.shape or value.ndim != len(domain.shape) + 1 or len(value) not in (1, n):
            raise ValueError(
                f"{name}: expected shape {(n, *domain.shape)}, or one row, got {value.shape}; {domain!r} is its domain"
            )
        check_finite(name, value)
        check_states(name, value, domain)


def check_langevin(model: EBLVM) -> None:
    """Raise TypeError if v is discrete, or if the latents are a dict."""
    check_has_score("annealed Langevin dynamics", model)
    if isinstance(model.h, Product):
        raise TypeError(
            f"annealed Langevin dynamics: expected latents in one array, got {model.h!r}; join them, or use MCMC()"
        )


def as_value(name: str, value: Any, domain: Domain, lead: tuple[int, ...]) -> Array:
    """Return a value of a variable with leading axes `lead`. Raise unless it is in the variable's domain."""
    check_byte_order(name, value)
    value = jnp.asarray(value)
    check_numbers(name, value, floating=False)
    if value.shape != (*lead, *domain.shape):
        raise ValueError(
            f"{name}: expected shape {(*lead, *domain.shape)}, got {value.shape}; {domain!r} is its domain"
        )
    check_finite(name, value)
    check_states(name, value, domain)
    return value


def check_run(count: int, run: Run) -> None:
    """Raise unless counts are positive and the schedule has enough steps for the snapshots."""
    for name, value in (("count", count), ("batch", run.batch), ("chunk", run.chunk)):
        check_count(name, value, 1, "give more")
    steps = run.schedule.steps
    most = max(1, steps - 1)
    if run.record is not None and not 1 <= run.record <= most:
        raise ValueError(
            f"record: expected 1 to {most} snapshots of {steps} steps, got {run.record}; None records nothing"
        )


def check_latents(model: EBLVM, h: Array | np.ndarray, dtype: np.dtype, name: str = "h") -> Array:
    """Return h as an array (n, …), in the chain's dtype if it is floating. Raise unless it fits the model."""
    check_byte_order(name, h)
    h = jnp.asarray(h)
    if h.ndim != 1 + len(model.h.shape) or h.shape[1:] != model.h.shape or not len(h):
        wanted = ", ".join(map(str, ("n", *model.h.shape)))
        hint = "; add the axis of the chains with h[None]" if h.shape == model.h.shape else ""
        raise ValueError(f"{name}: expected shape ({wanted}) with at least one row, got {h.shape}{hint}")
    check_finite(name, h)
    h = h.astype(dtype) if jnp.issubdtype(h.dtype, jnp.floating) else h
    check_inputs(model, jnp.zeros((1, *model.v.shape), dtype), h[:1, None])
    return h


def check_continuous(model: EBLVM, dtype: np.dtype) -> None:
    """Raise TypeError if the model has discrete latents, which have no gradient."""
    if not model.h.continuous:
        raise TypeError(
            f"model: expected continuous latents, got {model.h!r} of a {type(model).__name__}; "
            "sample v given h with sample_v, or use gibbs_sample"
        )
    v = jnp.zeros((1, *model.v.shape), dtype)
    check_inputs(model, v, jnp.zeros((1, 1, *model.h.shape), dtype))


def held_pixels(
    model: EBLVM, mask: Array | np.ndarray | None, known: Array | np.ndarray | None, count: int, dtype: np.dtype
) -> Held | None:
    """Return the mask and the known entries of every draw, or None if none are held."""
    if mask is None and known is None:
        return None
    if mask is None or known is None:
        missing = "mask" if mask is None else "known"
        raise ValueError(f"{missing}: expected mask and known together, got only one of them; give both or none")
    check_untraced(mask=mask, known=known)
    if (mask := np.asarray(mask)).dtype != bool:
        raise TypeError(
            f"mask: expected booleans, true where an entry is known, got {mask.dtype}; compare, e.g. mask > 0"
        )
    pixels = np.asarray(known).astype(dtype)
    for name, array in (("mask", mask), ("known", pixels)):
        if array.shape not in (model.v.shape, (count, *model.v.shape)):
            raise ValueError(
                f"{name}: expected shape {model.v.shape} or {(count, *model.v.shape)}, got {array.shape}; "
                "give one for all draws or one for each"
            )
    mask, pixels = (np.broadcast_to(x, (count, *model.v.shape)) for x in (mask, pixels))
    check_finite("known", jnp.asarray(np.where(mask, pixels, 0)))
    if not model.v.continuous:
        _check_held_states(model.v, mask, pixels)
    return Held(jnp.asarray(mask), jnp.asarray(pixels))


def _check_held_states(domain: Domain, mask: np.ndarray, known: np.ndarray) -> None:
    """Raise ValueError unless held entries of a discrete v are valid states, and choices are held as a whole."""
    some = np.zeros_like(known)
    if isinstance(domain, Categorical):
        if (split := mask.any(axis=-1) != mask.all(axis=-1)).any():
            where = tuple(int(i) for i in np.argwhere(split)[0])
            raise ValueError(
                f"mask: expected all entries of a choice of {domain!r} or none, got some at {where}; hold whole rows"
            )
        some[..., 0] = 1
    check_states("known", np.where(mask, known, some), domain)
