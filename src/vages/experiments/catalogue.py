"""The experiments by name. Nothing heavy is imported until one is run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An experiment: the module with its `run(quick, seed)`, what it shows, and its minutes on two CPU cores."""

    module: str
    shows: str
    minutes: float
    quick_minutes: float


EXPERIMENTS = {
    "fig1": Entry(
        module="vages.experiments.fig1",
        shows="The biases of VaES and VaGES grow with the root of the posterior's divergence, within their bounds.",
        minutes=0.1,
        quick_minutes=0.1,
    ),
}
