"""The experiments by name. Nothing heavy is imported until one is run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An experiment: the module with its `run(quick, seed, say)`, what it shows, and its minutes on two CPU cores.

    If it needs a GPU, `minutes` is the time on an H200. If it `trains`, it keeps its runs in the folder `runs` that is
    passed to `run(…, runs)`.
    """

    module: str
    shows: str
    minutes: float
    quick_minutes: float
    needs_gpu: bool = False
    trains: bool = False

    @property
    def takes(self) -> str:
        """How long it takes."""
        where = "an H200" if self.needs_gpu else "two CPU cores"
        return f"{self.minutes:g} min on {where}; with --quick {self.quick_minutes:g} on two CPU cores"


EXPERIMENTS = {
    "fig1": Entry(
        module="vages.app.experiments.fig1",
        shows="The biases of VaES and VaGES grow with the square root of q's divergence, within their bounds.",
        minutes=0.2,
        quick_minutes=0.1,
    ),
    "fig2": Entry(
        module="vages.app.experiments.fig2",
        shows="On the checkerboard, VaGES-KSD beats importance sampling and comes close to exact KSD.",
        minutes=12.0,
        quick_minutes=1.5,
    ),
    "fig4": Entry(
        module="vages.app.experiments.fig4",
        shows="On Frey face, VaGES-DSM performs like BiDSM in less time and memory.",
        minutes=720.0,
        quick_minutes=2.5,
    ),
    "fig5": Entry(
        module="vages.app.experiments.fig5",
        shows="VaGES-Fisher estimates the Fisher divergence of a GRBM from the data.",
        minutes=15.0,
        quick_minutes=1.0,
    ),
    "stein-tests": Entry(
        module="vages.app.experiments.stein_tests",
        shows="The Stein tests hold their level and gain power, with the exact score and with VaES.",
        minutes=10.0,
        quick_minutes=1.0,
    ),
    "checkerboard-methods": Entry(
        module="vages.app.experiments.checkerboard_methods",
        shows="VaGES-DSM compared with CD, PCD, NCE, VNCE, exact DSM and BiDSM on the checkerboard.",
        minutes=15.0,
        quick_minutes=2.5,
    ),
    "control-variate": Entry(
        module="vages.app.experiments.control_variate",
        shows="The control variate makes little difference to VaGES-DSM and VaGES-KSD.",
        minutes=8.0,
        quick_minutes=1.0,
    ),
    "table-time-memory": Entry(
        module="vages.app.experiments.table_time_memory",
        shows="Training a deep EBLVM by VaGES-MDSM costs less than by BiMDSM, and little more than a plain EBM.",
        minutes=6.0,
        quick_minutes=2.0,
        needs_gpu=True,
    ),
    "sensitivity": Entry(
        module="vages.app.experiments.sensitivity",
        shows="Effects of the dimension of h, depth, L, K, C, the corrector's noise and the divergence of q.",
        minutes=25.0,
        quick_minutes=5.0,
        needs_gpu=True,
    ),
    "table1": Entry(
        module="vages.app.experiments.table1",
        shows="FIDs of VaGES-MDSM on CIFAR10 and CelebA, and of MDSM without latents; with --quick, of small digits.",
        minutes=200.0,
        quick_minutes=7.0,
        needs_gpu=True,
        trains=True,
    ),
    "annealing": Entry(
        module="vages.app.experiments.annealing",
        shows="How far the paper's annealed Langevin dynamics move from their start if the score is exact.",
        minutes=0.5,
        quick_minutes=0.1,
    ),
    "fig-samples": Entry(
        module="vages.app.experiments.fig_samples",
        shows="Samples of deep EBLVMs of MNIST, CIFAR10 and CelebA; with --quick, of small digits.",
        minutes=300.0,
        quick_minutes=3.5,
        needs_gpu=True,
        trains=True,
    ),
    "fig-interpolation": Entry(
        module="vages.app.experiments.fig_interpolation",
        shows="Langevin trajectories change smoothly as h does.",
        minutes=300.0,
        quick_minutes=3.0,
        needs_gpu=True,
        trains=True,
    ),
}
