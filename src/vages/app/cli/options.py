"""How options look in --help, without JAX. Some choices are listed here; a test compares them with the library's."""

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
    """An option that may be left out, and what then holds."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def choices(options: object) -> str:
    """The options of a Literal, for a metavar."""
    return "{" + ",".join(get_args(options)) + "}"


def choice(options: object):
    """A positional argument that is one of these."""
    return tyro.conf.arg(metavar=choices(options), help_behavior_hint="")


# what several commands take is written the same way in each
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
Data = Annotated[str | None, given("FILE|FOLDER", "where they were in training")]
RecipeFile = Annotated[str | None, given("FILE.py[:NAME]", "none, for the run of a preset")]
Sampling = Annotated[float | None, given("FLOAT", "the run's")]


def new(name: str):
    """An option for a folder, and what it is where it is left out."""
    return given("DIR", f"the first free RUN/{name}-NUMBER")
