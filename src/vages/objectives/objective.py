"""What a learning objective is: a gradient for θ from a batch, with all noise given."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, PRNGKeyArray

from vages.distributions import Distribution
from vages.estimators import Encoding
from vages.models import EBLVM
from vages.posteriors import Posterior


class Problem(NamedTuple):
    """Where the gradient is wanted."""

    model: Any
    posterior: Posterior
    extra: Any  # what the objective trains beside the model: NCE's log-normaliser
    memory: Any  # what the objective carries from batch to batch: PCD's chains
    w: Array  # the batch as it came
    points: Any  # what `points` made of it
    encoding: Encoding  # the features at the points' v
    advance: Callable[[EBLVM], Posterior]  # the posterior some unrolled steps ahead, as a function of the model


class Direction(NamedTuple):
    """The loss, its gradient in (model, extra), and the new memory."""

    loss: Float[Array, ""]
    gradient: tuple[Any, Any]
    memory: Any


@runtime_checkable
class Points(Protocol):
    """Anything with the v at which the posterior is to be good, and how much that matters at each."""

    @property
    def v(self) -> Array:
        """A batch of visible variables."""
        ...

    @property
    def weight(self) -> Float[Array, "batch"] | None:
        """The weight of each example's divergence in the posterior's steps; None where all count alike."""
        ...


class Data(NamedTuple):
    """The batch as it came, for objectives that add no noise."""

    v: Array
    weight: None = None


@runtime_checkable
class Objective(Protocol):
    """The contract that every family in this room keeps."""

    @property
    def unrolled(self) -> int:
        """How many posterior steps `Problem.advance` unrolls."""
        ...

    def start(self, key: PRNGKeyArray, model: EBLVM, batch: int) -> tuple[Any, Any]:
        """The first (extra, memory)."""
        ...

    def draw(self, keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, q: Distribution, w: Array) -> Any:
        """All noise of one gradient. Model, q and w are asked for shapes and dtypes alone."""
        ...

    def points(self, w: Array, noise: Any) -> Points:
        """Where the model and the posterior are looked at: a noised batch, or the batch itself."""
        ...

    def gradient(self, problem: Problem, noise: Any) -> Direction:
        """The direction that θ descends."""
        ...
