"""Types of options and their form in --help, without JAX. A test compares the listed choices with the library's."""

from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

Experiment = Literal[
    "fig1",
    "fig2",
    "fig4",
    "fig5",
    "stein-tests",
    "checkerboard-methods",
    "control-variate",
    "table-time-memory",
    "table1",
    "sensitivity",
    "annealing",
    "fig-samples",
    "fig-interpolation",
    "all",
]
Bench = Literal["estimators", "grbm", "deep", "overhead"]
Policy = Literal["stop", "recover"]
Shell = Literal["bash", "zsh", "fish", "tcsh"]


def given(metavar: str, default: str = "the preset's"):
    """An option that may be left out, with its default in words."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def choices(options: object) -> str:
    """The values of a Literal, as a metavar."""
    return "{" + ",".join(get_args(options)) + "}"


def choice(options: object):
    """A positional argument with the choices of a Literal."""
    return tyro.conf.arg(metavar=choices(options), help_behavior_hint="")


# options of several commands
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
Data = Annotated[str | None, given("FILE|FOLDER", "their path during training")]
RecipeFile = Annotated[str | None, given("FILE.py[:NAME]", "none, for the run of a preset")]
Sampling = Annotated[float | None, given("FLOAT", "the run's")]


def new(name: str):
    """An option for a folder, by default the first free RUN/NAME-NUMBER."""
    return given("DIR", f"the first free RUN/{name}-NUMBER")
