"""Runs an experiment and writes a folder with its results."""

import importlib
import math
import time
from dataclasses import dataclass
from pathlib import Path

from vages.app.experiments.catalogue import EXPERIMENTS
from vages.app.experiments.claims import Outcome, Say
from vages.app.report import figure_png
from vages.app.runs import write_report
from vages.environment import environment
from vages.storage.directory import Directory


@dataclass(frozen=True)
class Reproduction:
    """Where the results of an experiment are, and whether the run was sound (every claim's value is finite)."""

    folder: Path
    outcome: Outcome
    minutes: float
    sound: bool
    moved: Path | None  # where earlier results of the same name went


def reproduce(
    name: str, out: Path, *, quick: bool = False, seed: int = 0, say: Say = lambda line: None
) -> Reproduction:
    """Run the experiment `name`; write `out/name/result.json`, its figures and a page. Earlier results are moved aside.

    `say` is called with progress messages. Runs that several experiments share are kept in `out/runs`.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name: expected one of {', '.join(EXPERIMENTS)}, got {name!r}; see vages reproduce --list")
    folder = out / name
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out: expected {folder} to be a folder, got a file; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    module = importlib.import_module(EXPERIMENTS[name].module)
    start = time.perf_counter()
    kept = {"runs": out / "runs"} if EXPERIMENTS[name].trains else {}
    outcome: Outcome = module.run(quick=quick, seed=seed, say=say, **kept)
    minutes = (time.perf_counter() - start) / 60

    moved, results = _move_aside(folder), Directory(folder)
    results.create()
    sound = bool(outcome.claims) and all(math.isfinite(claim.value) for claim in outcome.claims)
    record = {
        "experiment": name,
        "quick": quick,
        "seed": seed,
        "sound": sound,
        **outcome.record(),
        "environment": environment(),
        "minutes": minutes,
    }
    results.write_json("result.json", record)
    for title, figure in outcome.figures.items():
        results.write_bytes(f"{title}.png", figure_png(figure))
    write_report(folder)
    return Reproduction(folder, outcome, minutes, sound, moved)


def _move_aside(folder: Path) -> Path | None:
    if not folder.exists():
        return None
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    return folder.rename(aside)
