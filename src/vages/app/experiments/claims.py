"""Claims of the paper, each with a number and a bound, and the result of an experiment."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from matplotlib.figure import Figure

Say = Callable[[str], None]
"""Where an experiment tells what it has done so far."""


@dataclass(frozen=True)
class Claim:
    """A sentence, the measured value, the bound it is held against, and whether it holds."""

    claim: str
    value: float
    bound: float
    holds: bool

    @staticmethod
    def at_least(claim: str, value: float, bound: float) -> "Claim":
        """Holds where value ≥ bound; never for a value that is not a number."""
        return Claim(claim, float(value), bound, bool(value >= bound))

    @staticmethod
    def at_most(claim: str, value: float, bound: float) -> "Claim":
        """Holds where value ≤ bound; never for a value that is not a number."""
        return Claim(claim, float(value), bound, bool(value <= bound))


@dataclass(frozen=True)
class Outcome:
    """What an experiment found: its settings, its claims, the numbers behind them, and figures by name."""

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
