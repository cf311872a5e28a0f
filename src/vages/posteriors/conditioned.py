"""Networks of v and the context of an example."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array


class Conditioned(eqx.Module):
    """`network` of one vector: v, flattened, concatenated with the named entries of the context.

        Conditioned(eqx.nn.Linear(2 + 10, 3, key=key), {"label": 10})

    Integers are one-hot encoded in this number of classes; floating-point entries are flattened to this number of
    values. Entries that are not named are left out.
    """

    network: Callable[[Array], Any]
    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)

    def __init__(self, network: Callable[[Array], Any], context: Mapping[str, int]):
        self.network, self.sizes = network, tuple(sorted(context.items()))
        for name, size in self.sizes:
            if not isinstance(size, int) or size < 1:
                raise ValueError(
                    f"context[{name!r}]: expected a number of classes, or the size of a vector, got {size!r}; "
                    "write {'label': 10}, say"
                )

    def __call__(self, v: Array, context: Any = None) -> Any:
        """The result for one example."""
        return self.network(jnp.concatenate([v.reshape(-1), *(_vector(context, *one, v.dtype) for one in self.sizes)]))


def check_labels(posterior: Any, context: Any) -> None:
    """Raise if a label is not among the classes of a posterior's network, which would encode it as zeros.

    Values are checked only if they are concrete, not inside `jit` or `vmap`.
    """
    if not isinstance(context, dict):
        return
    parts = jax.tree.leaves(posterior, is_leaf=lambda part: isinstance(part, Conditioned))
    for name, size in (one for part in parts if isinstance(part, Conditioned) for one in part.sizes):
        entry: Any = context.get(name)
        if not hasattr(entry, "dtype") or isinstance(entry, Tracer) or not jnp.issubdtype(entry.dtype, jnp.integer):
            continue
        values = np.asarray(entry)
        if np.any(outside := (values < 0) | (values >= size)):
            raise ValueError(
                f"context[{name!r}]: expected labels from 0 to {size - 1}, the {size} classes of the posterior's "
                f"network, got {values[outside].flat[0]}; count labels from 0, or build it for more classes"
            )


def with_context(
    build: Callable[[Any], Callable[..., Any]], shape: int | tuple[int, ...], context: Mapping[str, int] | None
) -> Callable[..., Any]:
    """Return `build(shape)`, or with a context a `Conditioned` network of v and its entries."""
    if context is None:
        return build(shape)
    size = shape if isinstance(shape, int) else math.prod(shape)
    return Conditioned(build(size + sum(context.values())), context)


def call(network: Callable[..., Any], v: Array, context: Any) -> Any:
    """`network(v, context)` where there is a context and the network takes it; `network(v)` otherwise."""
    return network(v) if context is None or not reads_context(network) else network(v, context)


def reads_context(network: Callable[..., Any]) -> bool:
    """Whether a network takes a second argument that is called `context` or has no default."""
    return _of_class(type(network)) if isinstance(network, eqx.Module) else _takes_context(network)


@lru_cache(maxsize=64)
def _of_class(kind: Any) -> bool:
    return _takes_context(kind.__call__, skip=1)


def _takes_context(function: Callable[..., Any], skip: int = 0) -> bool:
    try:
        named = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):  # a function not written in Python
        return False
    taken = [one for one in named if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)]
    if any(one.kind == one.VAR_POSITIONAL for one in taken[:2]):
        return True
    return len(taken) > 1 and (taken[1].name == "context" or taken[1].default is inspect.Parameter.empty)


def _vector(context: Any, name: str, size: int, dtype: Any) -> Array:
    """Return one entry of the context as `size` numbers."""
    if not isinstance(context, dict) or name not in context:
        got = f"one with {', '.join(sorted(context))}" if isinstance(context, dict) else "none"
        raise ValueError(f"context: expected {name!r}, which the posterior's network reads, got {got}; give it")
    entry = jnp.asarray(context[name])
    if jnp.issubdtype(entry.dtype, jnp.floating):
        if entry.size != size:
            raise ValueError(f"context[{name!r}]: expected {size} numbers, got shape {entry.shape}; correct the size")
        return entry.reshape(-1).astype(dtype)
    if entry.size != 1:
        raise ValueError(
            f"context[{name!r}]: expected one label among {size}, got shape {entry.shape}; cast numbers to float32"
        )
    return jax.nn.one_hot(entry.reshape(()).astype(jnp.int32), size, dtype=dtype)
