"""A posterior whose network computes in lower precision than its parameters."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from vages.distributions import Distribution
from vages.models import EBLVM
from vages.models.mixed import cast, check_floating, dtype_of
from vages.posteriors.posterior import Posterior


class MixedPosterior(Posterior):
    """`posterior` computed in `dtype`, such as bfloat16, with q and gradients in the dtype of its parameters."""

    posterior: Posterior
    dtype: DTypeLike = eqx.field(static=True, converter=jnp.dtype)

    def __check_init__(self):
        check_floating(self.dtype)

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Distribution:
        narrow = lambda tree: cast(tree, self.dtype)
        known = () if context is None else (narrow(context),)
        q = narrow(self.posterior)(narrow(model), narrow(features), narrow(v), *known)
        return cast(q, dtype_of(self.posterior, v))
