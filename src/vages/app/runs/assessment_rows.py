"""What an assessment is made of: rows of numbers, and how much is looked at for them."""

from dataclasses import dataclass
from typing import Annotated

from vages.bounds import Bounds, check_fields
from vages.evaluation import Estimate

LONG = 1000  # dimensions, above which traces are estimated, and log Z is not


@dataclass(frozen=True)
class Sizes:
    """How much is looked at: examples, the critic's iterations and width, samples of h, replicates of the bootstrap.

    `annealing` is the number of temperatures of AIS, with half as many chains; large networks get fewer of both.
    """

    examples: Annotated[int, Bounds(20, 10**6)] = 1000
    critic_steps: Annotated[int, Bounds(1, 10**7)] = 2000
    critic_width: Annotated[int, Bounds(1, 2**14)] = 256
    samples: Annotated[int, Bounds(4, 2**16)] = 16
    replicates: Annotated[int, Bounds(1, 10**6)] = 1000
    annealing: Annotated[int, Bounds(2, 10**6)] = 500

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Row:
    """One number, or none, and what it means."""

    name: str
    value: float | None
    standard_error: float | None
    means: str


def estimate_row(name: str, estimate: Estimate, means: str) -> Row:
    """The row of a mean over examples."""
    return Row(name, estimate.mean, estimate.error, means)
