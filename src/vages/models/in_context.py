"""A model at a fixed context, as a model without a context."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vages.checks import check_kind, check_own_context
from vages.domains import Domain
from vages.models.eblvm import EBLVM


class InContext(EBLVM):
    """p(v, h | context) of `model` at one context, such as a noise level or a label.

        InContext(model, {"sigma": 0.1})

    Functions of a model, such as samplers, Stein tests and posterior gaps, then work at this noise level.
    """

    model: EBLVM
    context: dict[str, Any]

    def __init__(self, model: EBLVM, context: Any):
        check_kind("context", context, dict, "a dict of one example's entries", "write {'sigma': 0.1}, say")
        check_own_context(context, model)
        self.model, self.context = model, {name: jnp.asarray(value) for name, value in context.items()}

    @property
    def v(self) -> Domain:
        return self.model.v

    @property
    def h(self) -> Domain:
        return self.model.h

    @property
    def normalized(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.model.normalized

    def check_context(self, context: Any) -> None:
        """Raise if the model refuses a context in addition to the fixed one."""
        if context is not None:
            check_own_context(context, self.model)

    def knows(self, context: Any) -> Bool[Array, "*rows"]:
        """Whether the model accepts each row of a context in addition to the fixed one; true if it has no check."""
        return self.model.knows(context) if hasattr(self.model, "knows") else jnp.asarray(True)  # pyright: ignore[reportAttributeAccessIssue]

    def features(self, v: Array, context: Any = None) -> Any:
        return self.model.features(v, self.context | ({} if context is None else context))

    def log_joint(self, features: Any, h: Any) -> Float[Array, ""]:
        return self.model.log_joint(features, h)
