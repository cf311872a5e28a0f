"""What a variational posterior is."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from vages.distributions import Distribution
from vages.models import EBLVM


class Posterior(eqx.Module):
    """q(h | v): the distribution of h at one example.

    A learnt posterior looks at v; one that is built from the model may use the model and the features of v,
    which are there anyway.
    """

    @abstractmethod
    def __call__(self, model: EBLVM, features: Any, v: Array) -> Distribution:
        """The distribution of h given one v."""


def infer(posterior: Posterior, model: EBLVM, features: Any, v: Array) -> Distribution:
    """q(h | v) for a batch of v with their features: a batch of distributions."""
    return jax.vmap(lambda features, v: posterior(model, features, v))(features, v)
