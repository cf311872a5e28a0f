"""What a variational posterior is."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from vages.checks import check_inputs, check_kind
from vages.distributions import Distribution
from vages.models import EBLVM, Encoding, features_of
from vages.posteriors.conditioned import check_labels


class Posterior(eqx.Module):
    """q(h | v): the distribution of h at one example.

    A learnt posterior looks at v; one that is built from the model may use the model and the features of v,
    which are there anyway.
    """

    closed_form = False  # whether it asks the model for closed forms

    @abstractmethod
    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Distribution:
        """The distribution of h given one v. As in a model, `context` is given only where there is one."""


def infer(model: EBLVM, posterior: Posterior, v: Array | Encoding, context: Any = None) -> Distribution:
    """q(h | v) for a batch of v, or for an encoding of it: a batch of distributions."""
    if isinstance(v, Encoding):
        features, v, context = v.features, v.v, v.context
    else:
        check_inputs(model, v, context=context)
        check_kind("posterior", posterior, Posterior, "a Posterior", "infer takes (model, posterior, v), in this order")
        features = features_of(model, v, context)
    if context is None:
        return jax.vmap(lambda features, v: posterior(model, features, v))(features, v)
    check_labels(posterior, context)
    return jax.vmap(lambda *one: posterior(model, *one))(features, v, context)


def has_parameters(posterior: Posterior | None) -> bool:
    """Whether there is anything to train."""
    return any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(posterior))
