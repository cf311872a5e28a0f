"""The base classes of energy-based latent variable models."""

from abc import abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from vages.checks import check_kind
from vages.distributions import Distribution
from vages.domains import Domain, as_domain


class EBLVM(eqx.Module):
    """p(v, h) ∝ exp(−E(v, h)): two functions of one example, and the domains of v and h.

    The library uses v only through `features(v)`, so costly computations that do not depend on h belong there.
    Batches are made by `vmap`, never by the model.
    """

    normalized = False  # whether log p̃(v) is log p(v) itself, without an unknown constant

    if TYPE_CHECKING:  # properties or fields of a subclass; type checkers take an AbstractVar for a field of `__init__`

        @property
        def v(self) -> Domain:
            """The domain of the visible variables."""
            ...

        @property
        def h(self) -> Domain:
            """The domain of the latent variables."""
            ...
    else:
        v: eqx.AbstractVar[Domain]
        h: eqx.AbstractVar[Domain]

    def __check_init__(self):
        """Raise unless the fields v and h, if there are any, are static domains. A dict as h is converted to one."""
        for own in (own for own in fields(self) if own.name in ("v", "h")):
            domain = getattr(self, own.name)
            domain = as_domain(domain) if own.name == "h" else domain
            check_kind(own.name, domain, Domain, "a domain", "write Real(2) for a vector of two real numbers")
            if not own.metadata.get("static", False):
                raise TypeError(
                    f"{own.name}: expected a static field, got one among the arrays of {type(self).__name__}; write "
                    f"{own.name}: vages.Domain = eqx.field(static=True)"
                )
            object.__setattr__(self, own.name, domain)

    @abstractmethod
    def features(self, v: Array, context: Any = None) -> Any:
        """Compute all that `log_joint` needs of v, as any pytree; return v itself if there is nothing to share.

        `context` is what the model is conditioned on, a dict of arrays. It is passed only if the data have one: models
        without a context may omit the argument.
        """

    @abstractmethod
    def log_joint(self, features: Any, h: Any) -> Float[Array, ""]:
        """log p̃(v, h) = −E(v, h), from the features of v."""


class TractableEBLVM(EBLVM):
    """A model whose posterior, marginal and normalizer can be computed exactly."""

    @abstractmethod
    def posterior(self, features: Any) -> Distribution:
        """The exact p(h | v)."""

    @abstractmethod
    def free_energy(self, v: Array) -> Float[Array, ""]:
        """F(v) = −log ∫ p̃(v, h) dh."""

    @abstractmethod
    def log_partition(self) -> Float[Array, ""]:
        """log Z = log ∫ p̃(v, h) dv dh."""

    def log_prob(self, v: Array) -> Float[Array, ""]:
        """log p(v). For many v outside `jit`, call `log_partition()` only once instead."""
        return -self.free_energy(v) - self.log_partition()

    def score(self, v: Array) -> Array:
        """∇_v log p(v) = −∇_v F(v)."""
        return jax.grad(lambda v: -self.free_energy(v))(v)
