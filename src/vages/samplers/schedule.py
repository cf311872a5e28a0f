"""The temperatures of annealed Langevin dynamics, and the resulting moves."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from vages.checks import check_scale
from vages.samplers.langevin import Move


@dataclass(frozen=True)
class Schedule:
    """Steps at the top temperature, cooling geometrically to 1, freezing linearly from 1 to 0, then denoising.

    The defaults are those of the paper's deep models (Li, Chen & Sommer 2019): 500, 2,000 and 200 steps of size 0.02,
    from temperature 100. `denoise` is the noise level σ₀ that the model was trained at; None skips denoising. A chain
    with an entry further than `box` from 1/2 counts as diverged.
    """

    hot_steps: int = 500
    cooling_steps: int = 2000
    freezing_steps: int = 200
    top_temperature: float = 100.0
    step_size: float = 0.02
    denoise: float | None = 0.1
    box: float = 1000.0

    def __post_init__(self):
        for name in ("hot_steps", "cooling_steps", "freezing_steps"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"Schedule: {name}: expected at least 0, got {value}; 0 leaves that part out")
        if self.steps < 1:
            raise ValueError("Schedule: expected at least one step, got 0; give hot, cooling or freezing steps")
        for name in ("top_temperature", "step_size", "denoise", "box"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                hint = "; give None for no denoising" if name == "denoise" else ""
                raise ValueError(f"Schedule: {name}: expected a finite number above 0, got {value}{hint}")
        for name in ("step_size", "denoise"):
            if (value := getattr(self, name)) is not None:
                check_scale(f"Schedule: {name}", value, "number", "take 0.1, say")

    @property
    def steps(self) -> int:
        """Number of Langevin steps, without denoising."""
        return self.hot_steps + self.cooling_steps + self.freezing_steps

    def scaled(self, fraction: float) -> "Schedule":
        """Return the schedule with a fraction of the steps in each part, and at least one if there was any."""
        if not 0 < fraction < math.inf:
            raise ValueError(f"scaled: fraction: expected a finite number above 0, got {fraction}")
        fewer = lambda steps: max(round(steps * fraction), 1) if steps else 0
        return replace(
            self,
            hot_steps=fewer(self.hot_steps),
            cooling_steps=fewer(self.cooling_steps),
            freezing_steps=fewer(self.freezing_steps),
        )

    def temperatures(self) -> Float[np.ndarray, "steps"]:
        """Return the temperature of each step. Cooling ends just above 1, where freezing begins; freezing ends at 0."""
        return np.concatenate(
            [
                np.full(self.hot_steps, self.top_temperature, np.float64),
                np.geomspace(self.top_temperature, 1, self.cooling_steps + 1)[:-1],
                np.linspace(1, 0, self.freezing_steps),
            ]
        )

    def snapshots(self, record: int) -> Int[np.ndarray, "record"]:
        """Return the steps after which `record` snapshots are taken. The last is the (denoised) result."""
        return np.append((self.steps - 1) // record * np.arange(1, record), self.steps)

    def moves(self) -> Move:
        """Return Langevin steps at the temperatures, then v + σ₀² ∇_v log p̃. h is not denoised, as it has no noise."""
        drift = np.full(self.steps, 0.5 * self.step_size**2)
        scale = np.sqrt(self.temperatures()) * self.step_size
        if self.denoise is None:
            return Move(drift, drift, scale)
        return Move(np.append(drift, self.denoise**2), np.append(drift, 0.0), np.append(scale, 0.0))
