"""What a variational posterior is, and the exact posterior as one."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from vages.distributions import Distribution, Gaussian
from vages.models import EBLVM, TractableEBLVM


class Posterior(eqx.Module):
    """q(h | v): the distribution of h at one example.

    A learnt posterior looks at v; one that is built from the model may use the model and the features of v,
    which are there anyway.
    """

    @abstractmethod
    def __call__(self, model: EBLVM, features: Any, v: Array) -> Distribution:
        """The distribution of h given one v."""


class ExactPosterior(Posterior):
    """q = p: the posterior of a model that has one in closed form. It has no parameters and never lags behind."""

    def __call__(self, model: EBLVM, features: Any, v: Array) -> Distribution:
        if not isinstance(model, TractableEBLVM):
            raise TypeError(
                f"ExactPosterior: expected a model with a closed-form posterior (a TractableEBLVM), "
                f"got {type(model).__name__}; learn a posterior instead"
            )
        return model.posterior(features)


class NoPosterior(Posterior):
    """The posterior of a model without latents: a distribution over an empty h, with nothing to learn."""

    def __call__(self, model: EBLVM, features: Any, v: Array) -> Gaussian:
        empty = jnp.zeros((0,), v.dtype)
        return Gaussian(empty, empty)


def infer(posterior: Posterior, model: EBLVM, features: Any, v: Array) -> Distribution:
    """q(h | v) for a batch of v with their features: a batch of distributions."""
    return jax.vmap(lambda features, v: posterior(model, features, v))(features, v)
