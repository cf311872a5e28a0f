"""One evaluation of an objective, as a learner makes it, with keys that a test can use as well."""

from typing import Any, NamedTuple

import equinox as eqx
import jax

from vages import Batch, encode
from vages.objectives import Given


class Followed(NamedTuple):
    points: Any
    loss: Any
    gradient: Any  # with respect to (model, extras)
    carry: Any


def follow(objective, key, model, posterior, w, extras=None, carry=None, points=None) -> Followed:
    """The gradient that a learner follows for a batch w. The first half of the key makes the points."""
    for_points, for_loss = jax.random.split(key)
    points = objective.perturb(for_points, Batch(w)) if points is None else points
    encoding = encode(model, points.v, points.context)

    def loss(trained):
        given = Given(Batch(w), points, encoding, trained[1], carry)
        value, metrics, after = objective.loss(for_loss, trained[0], posterior, given)
        return value, (metrics.get("loss", value), after)

    (_, (value, after)), gradient = eqx.filter_value_and_grad(loss, has_aux=True)((model, extras))
    return Followed(points, value, gradient, after)
