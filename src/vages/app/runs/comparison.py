"""Comparison of runs by their folders: settings that differ, results, and learning curves."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vages.app.report.page.document import Header, Section, page
from vages.app.report.page.markup import Markup, element
from vages.app.report.page.metrics import metric_panels
from vages.app.report.page.svg_curves import Panel, curve_figure
from vages.app.report.page.tables import records_table
from vages.app.runs.config import settings_of
from vages.app.runs.dataset import expected_fingerprints, recorded_dataset
from vages.app.runs.saved import current_result, saved_step
from vages.storage.directory import Directory
from vages.terminal import printable
from vages.training import RunFolder
from vages.training.digests import settings_digest
from vages.training.folder import read_object

_MOST = 20  # runs


class Compared(NamedTuple):
    """Names of the runs, rows of two tables (a name and its value in each run), and the logged metrics of each run."""

    names: list[str]
    settings: list[tuple[str, list[Any]]]  # those that differ, with recipe, data and start
    results: list[tuple[str, list[Any]]]
    curves: list[list[dict[str, Any]]]

    def record(self) -> dict[str, Any]:
        """Return names, settings and results as plain values for JSON."""
        return {
            "runs": self.names,
            "settings": dict(self.settings),
            "results": dict(self.results),
        }


def compare(paths: list[Path]) -> Compared:
    """Return the settings, recipes, data and starts that differ between runs, their results and logged metrics."""
    if not 2 <= len(paths) <= _MOST:
        raise ValueError(f"runs: expected 2 to {_MOST}, got {len(paths)}; name their folders")
    places = [path.resolve() for path in paths]
    if twice := [path for i, path in enumerate(paths) if places[i] in places[:i]]:
        raise ValueError(f"runs: expected different folders, got {twice[0]} twice; leave one out")
    names = _told_apart(paths)
    settings = [_what_decides(path) for path in paths]
    known = list(dict.fromkeys(name for one in settings for name in one))
    differ = [(name, [one.get(name) for one in settings]) for name in known]
    differ = [(name, values) for name, values in differ if any(value != values[0] for value in values)]
    curves = [RunFolder.metrics(path) for path in paths]
    results = [_numbers(path, rows) for path, rows in zip(paths, curves, strict=True)]
    known = list(dict.fromkeys(name for one in results for name in one))
    rows = [(name, [one.get(name) for one in results]) for name in known]
    return Compared(names, differ, rows, curves)


def write_comparison(compared: Compared, out: Path) -> Path:
    """Write a page with the curves of all runs in each panel, the settings that differ, and the results."""
    if out.suffix != ".html" or out.is_dir():
        raise ValueError(f"out: expected a file that ends in .html, got {out}; rename it")
    sections = []
    if panels := _panels(compared):
        sections.append(Section("Curves", element("div", *map(curve_figure, panels), class_="curves")))
    for title, rows in (("Settings that differ", compared.settings), ("Results", compared.results)):
        table = [{"": name, **dict(zip(compared.names, values, strict=True))} for name, values in rows]
        told = records_table(table, title) if table else element("p", "None.")
        sections.append(Section(title, told))
    said = ", ".join(compared.names)[:500]
    header = Header("Comparison", f"{len(compared.names)} runs", "side by side", "plain", said, Markup(""))
    with Directory(out.parent) as place:
        place.create()
        place.write_bytes(out.name, page(header, sections, []).encode())
    return out


def _panels(compared: Compared) -> list[Panel]:
    """Return a panel for each quantity that any run has logged, with a line for each run."""
    panels: dict[str, Panel] = {}
    for name, rows in zip(compared.names, compared.curves, strict=True):
        for panel in metric_panels(_means(rows), {}):
            known = panels.get(panel.title)
            lines = tuple(replace(line, name=name) for line in panel.lines)
            panels[panel.title] = replace(panel, lines=(*(known.lines if known else ()), *lines))
    return list(panels.values())


def _means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the logged metrics averaged over seeds."""
    return [{name: float(np.mean(x)) if isinstance(x, list) else x for name, x in row.items()} for row in rows]


def _what_decides(path: Path) -> dict[str, Any]:
    """Return the name of a run's recipe, its settings, and what else decides its result, with short hashes."""
    config, dataset = RunFolder.peek(path), recorded_dataset(path, RunFolder.events(path))
    begun, data = config.get("from"), expected_fingerprints({"dataset": dataset})
    told = {"recipe": config.get("recipe", ""), **settings_of(config)}
    told |= {"SHA-256 of the recipe": str(config["sha256"])[:12]} if "sha256" in config else {}
    told |= {"fingerprint of the data": settings_digest(data)[:12]} if data else {}
    told |= {"from": f"{begun.get('run')}, step {begun.get('step')}"} if isinstance(begun, dict) else {}
    return told


def _numbers(path: Path, logged: list[dict[str, Any]]) -> dict[str, Any]:
    """Return result.json with nested names flattened; only the steps if the run has not finished since."""
    not_finished = {"steps": saved_step(path), "interrupted": True}
    try:
        result = current_result(path, read_object(path, "result.json"), logged) or not_finished
    except FileNotFoundError:
        result = not_finished
    except (ValueError, OSError, RecursionError):
        result = {"result.json": "cannot be read"}
    flat: dict[str, Any] = {}
    for name, value in result.items():
        inner = value if isinstance(value, dict) else {"": value}
        flat |= {f"{name} {key}".strip(): one for key, one in inner.items() if not isinstance(one, list | dict)}
    return flat


def _told_apart(paths: list[Path]) -> list[str]:
    """Return the names of the folders, or their paths if names coincide."""
    names = [printable(path.resolve().name) for path in paths]
    return names if len(set(names)) == len(names) else [printable(str(path)) for path in paths]
