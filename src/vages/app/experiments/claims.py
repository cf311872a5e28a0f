"""Claims of the paper, each with a number and a bound, and the result of an experiment."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from matplotlib.figure import Figure

Say = Callable[[str], None]
"""A function that an experiment calls to report its progress."""


@dataclass(frozen=True)
class Claim:
    """A sentence, the measured value, its bound, and whether the claim holds: never for a value that is not finite."""

    claim: str
    value: float
    bound: float
    holds: bool

    @staticmethod
    def at_least(claim: str, value: float, bound: float) -> "Claim":
        """Return a claim that holds if value ≥ bound."""
        return Claim(claim, float(value), bound, math.isfinite(value) and bool(value >= bound))

    @staticmethod
    def above(claim: str, value: float, bound: float) -> "Claim":
        """Return a claim that holds if value > bound."""
        return Claim(claim, float(value), bound, math.isfinite(value) and bool(value > bound))

    @staticmethod
    def at_most(claim: str, value: float, bound: float) -> "Claim":
        """Return a claim that holds if value ≤ bound."""
        return Claim(claim, float(value), bound, math.isfinite(value) and bool(value <= bound))

    @staticmethod
    def below(claim: str, value: float, bound: float) -> "Claim":
        """Return a claim that holds if value < bound."""
        return Claim(claim, float(value), bound, math.isfinite(value) and bool(value < bound))

    @staticmethod
    def within(claim: str, value: float, least: float, most: float) -> list["Claim"]:
        """Return two claims, value ≥ least and value ≤ most."""
        return [
            Claim.at_least(f"{claim} is at least {least:g}", value, least),
            Claim.at_most(f"{claim} is at most {most:g}", value, most),
        ]


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment: settings, claims, measurements, and figures by name."""

    settings: dict[str, Any]
    claims: list[Claim]
    measurements: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The part that goes into result.json."""
        return {
            "claims": [asdict(claim) for claim in self.claims],
            "settings": self.settings,
            "measurements": self.measurements,
        }
