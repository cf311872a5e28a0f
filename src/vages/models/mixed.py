"""A model whose network computes in lower precision than its parameters."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from vages.domains import Domain
from vages.models.eblvm import EBLVM

Tree = TypeVar("Tree")


class Mixed(EBLVM):
    """`model` with `features` in `dtype`, such as bfloat16. Parameters, gradients and `log_joint` keep their dtype.

    Means and covariances over h stay in full precision; the convolutions, which are most of the cost, do not.
    """

    model: EBLVM
    dtype: DTypeLike = eqx.field(static=True, converter=jnp.dtype)

    def __check_init__(self):
        check_floating(self.dtype)

    @property
    def v(self) -> Domain:
        return self.model.v

    @property
    def h(self) -> Domain:
        return self.model.h

    def features(self, v: Array, context: Any = None) -> Any:
        known = () if context is None else (cast(context, self.dtype),)
        features = cast(self.model, self.dtype).features(v.astype(self.dtype), *known)
        return cast(features, dtype_of(self.model, v))

    def log_joint(self, features: Any, h: Any) -> Float[Array, ""]:
        return self.model.log_joint(features, h)


def cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """Cast the floating-point arrays of a tree to `dtype`. All other leaves are unchanged."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if _is_floating(leaf) else leaf, tree)


def dtype_of(*trees: Any):
    """Return the dtype of the first floating-point array."""
    return next(leaf.dtype for leaf in jax.tree.leaves(trees) if _is_floating(leaf))


def is_narrow(x: Any) -> bool:
    """Whether the dtype of an array or `ShapeDtypeStruct` is floating-point with fewer than 32 bits."""
    return jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4


def check_floating(dtype: DTypeLike) -> None:
    """Raise TypeError unless the dtype is floating-point."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype: expected a floating dtype, got {jnp.dtype(dtype)}; take bfloat16 or float32")


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating)
