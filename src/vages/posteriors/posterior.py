"""The base class of posteriors, and inference for a batch."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from vages.checks import check_inputs, check_kind, check_own_context
from vages.distributions import Distribution
from vages.models import EBLVM, Encoding, features_of
from vages.posteriors.conditioned import check_labels


class Posterior(eqx.Module):
    """q(h | v): the distribution of h at one example.

    A learned posterior reads v. One that is built from the model may use the model and the features of v, which are
    already computed.
    """

    closed_form = False  # whether it uses closed forms of the model

    @abstractmethod
    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Distribution:
        """Return the distribution of h given one v. As in models, `context` is passed only if there is one."""

    def check_context(self, context: Any) -> None:
        """Raise if a label of a batch is not among the classes of the network, which would encode it as zeros."""
        check_labels(self, context)


def infer(model: EBLVM, posterior: Posterior, v: Array | Encoding, context: Any = None) -> Distribution:
    """Return q(h | v) for a batch of v, or for its encoding, as a batch of distributions."""
    if isinstance(v, Encoding):
        features, v, context = v.features, v.v, v.context
    else:
        check_inputs(model, v, context=context)
        check_kind("posterior", posterior, Posterior, "a Posterior", "infer takes (model, posterior, v), in this order")
        features = features_of(model, v, context)
    if context is None:
        return jax.vmap(lambda features, v: posterior(model, features, v))(features, v)
    check_own_context(context, posterior)
    return jax.vmap(lambda *one: posterior(model, *one))(features, v, context)


def has_parameters(posterior: Posterior | None) -> bool:
    """Whether the posterior has trainable parameters."""
    return any(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(posterior))
