"""The experiments by name. Nothing heavy is imported until one is run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An experiment: the module with its `run(quick, seed, say)`, what it shows, and its minutes on two CPU cores."""

    module: str
    shows: str
    minutes: float
    quick_minutes: float


EXPERIMENTS = {
    "fig1": Entry(
        module="vages.experiments.fig1",
        shows="The biases of VaES and VaGES grow with the root of the posterior's divergence, within their bounds.",
        minutes=0.2,
        quick_minutes=0.1,
    ),
    "fig2": Entry(
        module="vages.experiments.fig2",
        shows="On the checkerboard, VaGES-KSD beats importance sampling and comes close to exact KSD.",
        minutes=12.0,
        quick_minutes=1.5,
    ),
    "fig4": Entry(
        module="vages.experiments.fig4",
        shows="On Frey face, VaGES-DSM performs like BiDSM in less time and memory.",
        minutes=720.0,
        quick_minutes=2.5,
    ),
    "checkerboard-methods": Entry(
        module="vages.experiments.checkerboard_methods",
        shows="VaGES-DSM beside CD, PCD, NCE, VNCE, exact DSM and BiDSM on the checkerboard.",
        minutes=15.0,
        quick_minutes=2.5,
    ),
    "control-variate": Entry(
        module="vages.experiments.control_variate",
        shows="The control variate makes little difference to VaGES-DSM and VaGES-KSD.",
        minutes=8.0,
        quick_minutes=1.0,
    ),
}
