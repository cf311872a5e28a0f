"""`vages report`: the contents of a results folder as the sections of one page."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.recipes import Recipe
from vages.app.report.page.document import Header, Section, page
from vages.app.report.page.embedded import figure
from vages.app.report.page.markup import Markup, as_float, duration, element, is_number, joined, number
from vages.app.report.page.metrics import measured_panels, metric_panels
from vages.app.report.page.reading import Reader
from vages.app.report.page.summaries import baseline_in, findings, largest_logged, run_figures, run_status
from vages.app.report.page.svg_curves import Panel, curve_figure
from vages.app.report.page.tables import claims_list, events_list, key_figures, records_table, settings_table
from vages.app.runs.commands import reproduce_command, resume_command, train_command
from vages.app.runs.config import OWN, check_unedited, is_own, kind_in, recipe_of, settings_of
from vages.app.runs.dataset import recorded_dataset
from vages.app.runs.reported_galleries import gallery_sections
from vages.app.runs.saved import current_result, saved_progress
from vages.app.runs.sketches import sketch_sections, sketched_step
from vages.app.settings import DeepSettings, ImageSettings
from vages.bounds import ITERATIONS
from vages.storage.directory import Directory
from vages.storage.durable import NotWritten
from vages.storage.errors import advice_for
from vages.terminal import printable
from vages.training import Diverged, RunFolder
from vages.training.checkpoint import has_checkpoints, last_step, newest_about
from vages.training.digests import canonical

NAME = "report.html"
ALARMING = frozenset({"warning", "checkpoint refused", "recovered", "diverged", "interrupted", "log incomplete"})
_PICTURES = {  # titles and alternative texts of the pictures that training draws
    "density": ("Density", "The density of the model on the plane, beside that of the data where it is known"),
    "samples": ("Samples", "Samples of the model, beside test data where they were drawn together"),
}
_DRAWN_AGAIN = ("curve",)  # pictures that the page replaces by interactive curves
_OF_IMAGES = DeepSettings.kind, ImageSettings.kind  # whose samples are a sheet of pixels
_MOST = 40  # pictures of a folder, and tables
_COMMAND = 5000  # characters


@contextmanager
def reported(folder: RunFolder, recipe: Recipe) -> Iterator[None]:
    """Close a run's folder and write its page after training, also if training diverged.

    If a file cannot be written, as on a full disk, raise `NotWritten` with the progress of training and
    the command that resumes it.
    """
    try:
        try:
            yield
        except Diverged:
            write_report(folder.path)
            raise
        finally:
            folder.close()
        write_report(folder.path)
    except OSError as error:
        raise NotWritten(_what_is_safe(folder.path, recipe, error)) from error


def _what_is_safe(path: Path, recipe: Recipe, error: OSError) -> str:
    if error.errno is None:  # the error of a checkpoint, which has all of this in its message
        return str(error)
    step, told = saved_progress(path, recipe.settings.steps)
    what = "pictures and results" if step == recipe.settings.steps else "the run"
    named = f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    again = resume_command(recipe, path)
    return f"{told}, but {what} could not be written: {named}; {advice_for(error)} and run {again}"


def write_report(folder: Path, out: Path | None = None, *, live: bool = False) -> Path:
    """Write the page of a run's folder, or of an experiment's results, to `out`, by default its report.html.

    Files that cannot be read are listed on the page, and so are links, which are not followed. The page is a function
    of the folder's name and files. A `live` run is still training: its page says so, and reloads itself.
    """
    out = folder / NAME if out is None else out
    if out.suffix != ".html" or out.is_dir():
        raise ValueError(f"out: expected a file that ends in .html, got {out}; rename it")
    with Directory(out.parent) as place:
        place.check_file(out.name)
        content = build_report(folder, live=live).encode()
        place.create()
        place.write_bytes(out.name, content)
    return out


def build_report(folder: Path, *, live: bool = False) -> str:
    """Return the page that `write_report` writes."""
    directory = Directory(folder)
    if directory.has_file("config.json"):
        last_step(directory / "checkpoints")  # a run of a newer version is refused
        return _run_page(Reader(directory), live)
    if directory.has_file("result.json"):
        return _experiment_page(Reader(directory))
    raise ValueError(
        f"run: expected the folder of a run or of an experiment's results, got {folder}, which holds neither "
        "config.json nor result.json; check it"
    )


def _run_page(reader: Reader, live: bool) -> str:
    checkpoints = Directory(reader.folder) / "checkpoints"
    config, found, environment = (reader.object(f"{name}.json") for name in ("config", "result", "environment"))
    reader.problems += _edited(reader.folder, config)
    events, rows = reader.rows("events.jsonl"), reader.rows("metrics.jsonl")
    result = current_result(reader.folder, found, rows)
    earlier = "" if result == found else f" after {int(as_float(found['steps'])):,} iterations"
    settings, kind = settings_of(config), kind_in(config)
    bound = {"test_log_likelihood": ("log 2, of the true distribution", float(np.log(2)))}  # only for the checkerboard
    bound = bound if settings.get("data") == "checkerboard" else {}
    baseline = baseline_in(result)
    if baseline is not None and baseline[1] <= 2 * largest_logged(rows, "loss"):  # else it flattens the curve
        bound["loss"] = baseline
    panels = metric_panels(rows, bound)
    warnings, notices = findings(result)
    told = [*(f"Warning: {one}." for one in warnings or []), *(f"Notice: {one}." for one in notices)]
    health = element("ul", *(element("li", one) for one in told), class_="health")
    sections = [Section("Health", health)] if told else []
    sections += [_curves(panels)] if panels else []
    sections += _pictures(reader, "Pictures", pixels=kind in _OF_IMAGES, earlier=earlier)
    sections += sketch_sections(reader)
    sections += gallery_sections(reader)
    if events:
        sections.append(Section("Events", events_list(events, ALARMING)))
    status = run_status(events, result, rows, live=live)
    finished, lost = status[0].startswith("finished"), status[0] == "diverged" and not has_checkpoints(checkpoints)
    data = recorded_dataset(reader.folder, events).get("path")
    again = _commands(reader.folder, config, data, finished=finished, stopped=not (finished or live or lost))
    sections.append(Section("Run it again", again))
    sections += _folded({"Result": result, "Settings": _told_settings(config), "Environment": environment})
    place, method = (str(settings.get(name, "")) for name in ("data", "method"))
    named = (str(config["recipe"]),) if is_own(config) else (Path(place).name, method)
    named = [part[:80] for part in named if part]
    header = Header(
        "Run" if kind is None else f"Run of {kind}",
        "\N{NO-BREAK SPACE}· ".join(named) or reader.folder.resolve().name,
        *status,
        key_figures(run_figures(settings, result, rows, events)),
    )
    return page(header, sections, reader.problems, reloads=live)


def _told_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the name and hash of the recipe, and the settings."""
    about = {name: config[name] for name in ("recipe", "sha256") if name in config} if "format" in config else {}
    return {**about, **settings_of(config)}


def _edited(folder: Path, config: dict[str, Any]) -> list[str]:
    """Return the problem if the settings are not those of the newest checkpoint."""
    about = newest_about(Directory(folder) / "checkpoints")
    if about is None or not config or canonical(about.get("config")) == canonical(config):
        return []
    try:
        check_unedited(folder, config, about)
    except (ValueError, OSError) as error:
        return [printable(str(error).replace(f"{folder}/", ""))]
    return []


def _experiment_page(reader: Reader) -> str:
    result = reader.object("result.json")
    claims, measured = result.get("claims"), result.get("measurements")
    claims = claims if isinstance(claims, list) else []
    sections = [Section("Claims", claims_list(claims))] if claims else []
    sections += _pictures(reader, "Figures")
    if panels := measured_panels(measured):
        sections.append(_curves(panels))
    if result:
        sections.append(Section("Run it again", _block(reproduce_command(result, reader.folder))))
    if isinstance(measured, dict) and measured:
        sections.append(Section("Measurements", _measurements(measured), folded=True))
    sections += _folded({"Settings": result.get("settings"), "Environment": result.get("environment")})
    holding = sum(isinstance(claim, dict) and claim.get("holds") is True for claim in claims)
    header = Header(
        "Experiment of the paper",
        str(result.get("experiment") or reader.folder.resolve().name)[:80],
        f"{holding} of {len(claims)} claims hold",
        "good" if claims and holding == len(claims) else "bad",
        "The result is invalid: a value is not a finite number." if result.get("sound") is False else "",
        key_figures(_experiment_figures(result)),
    )
    return page(header, sections, reader.problems)


def _experiment_figures(result: dict[str, Any]) -> dict[str, object]:
    figures: dict[str, object] = {}
    if isinstance(result.get("quick"), bool):
        figures["size"] = "quick" if result["quick"] else "as in the paper"
    if is_number(result.get("seed")):
        figures["seed"] = number(result["seed"])
    if is_number(result.get("minutes")):
        figures["duration"] = duration(60 * as_float(result["minutes"]))
    return figures


def _curves(panels: list[Panel]) -> Section:
    told = "Hover or use the arrow keys to read a curve; drag across it, or press + and −, to zoom; 0 shows all."
    curves = element("div", *map(curve_figure, panels), class_="curves")
    return Section("Curves", joined([element("p", told, class_="note help"), curves]))


def _pictures(reader: Reader, title: str, *, pixels: bool = False, earlier: str = "") -> list[Section]:
    """Return the PNG files of the folder: those of training in separate sections, the others in one.

    `earlier` says when they were drawn, if the run has trained further since.
    """
    sections, others = [], []
    for name in reader.names(".png")[:_MOST]:
        stem = Path(name).stem
        if stem in _DRAWN_AGAIN or sketched_step(name) is not None or (picture := reader.picture(name)) is None:
            continue
        if stem in _PICTURES:
            heading, alt = _PICTURES[stem]
            sections.append(Section(heading + earlier, figure(picture, alt, pixels=pixels)))
        else:
            others.append(figure(picture, f"The figure {stem}", stem + earlier))
    return [*sections, Section(title, joined(others))] if others else sections


def _commands(folder: Path, config: dict[str, Any], data: object, *, finished: bool, stopped: bool) -> Markup:
    where, found, parts = shlex.quote(str(folder)), train_command(config, data), []
    own_file = f"{shlex.quote(_file(config))} " if is_own(config) else ""
    if found is None:
        parts.append(
            element("p", "The settings are not those of a recipe, so there is no command that repeats the run.")
        )
    else:
        command, lost = found
        parts += [element("p", "To repeat this run in a new folder:"), _block(command)]
        if lost:
            parts.append(element("p", f"The command has no option for this run's value of {', '.join(lost)}."))
    goes_on = [element("p", "To resume it where it stopped:"), _block(f"vages train {own_file}--resume {where}")]
    parts += _longer(folder, config) if finished else goes_on if stopped else []
    own = f" --recipe {shlex.quote(_file(config))}" if is_own(config) else ""
    more = ["sample", "interpolate", "inpaint", "embed"] if kind_in(config) is not None else []
    more = [verb for verb in more if verb != "embed" or settings_of(config).get("latents") != 0]
    lines = "\n".join([*(f"vages {verb} {where}{own}" for verb in more), f"vages report {where}"])
    told = "To draw more from the model, and to write this page again:" if more else "To write this page again:"
    return joined([*parts, element("p", told), _block(lines)])


def _file(config: dict[str, Any]) -> str:
    """Return the file of a custom recipe, with the name of the recipe unless it is the default.

    A recipe without a file has to be written to one.
    """
    return "FILE.py" if config.get("recipe") == OWN else str(config.get("recipe")).removesuffix(":recipe")


def _longer(folder: Path, config: dict[str, Any]) -> list[Markup]:
    """Return how to train a finished run for longer, if possible; empty if its settings cannot be read."""
    if is_own(config):  # depends on the recipe, which is not available
        return []
    try:
        recipe = recipe_of(folder)
    except (ValueError, OSError):
        return []
    if "steps" not in recipe.free:
        return [element("p", "More iterations need a new run: this run’s learning rate depends on their number.")]
    steps = min(2 * recipe.settings.steps, ITERATIONS.high)
    command = f"vages train --resume {shlex.quote(str(folder))} --steps {steps}"
    return [element("p", "To train it for longer:"), _block(command)]


def _block(command: str) -> Markup:
    command = command if len(command) <= _COMMAND else f"{command[:_COMMAND]} … (cut short)"
    return element("pre", element("code", command), tabindex="0", role="group", aria_label="Command")


def _measurements(measured: dict[str, Any]) -> Markup:
    """Return lists of records as separate tables, and everything else in one table."""
    is_table = lambda one: isinstance(one, list) and one and all(isinstance(record, dict) for record in one)
    tables = [records_table(one, str(name)[:200]) for name, one in measured.items() if is_table(one)]
    rest = {name: one for name, one in measured.items() if not is_table(one)}
    return joined([settings_table(rest, "Measurements") if rest else "", *tables[:_MOST]])


def _folded(tables: dict[str, Any]) -> list[Section]:
    return [
        Section(title, settings_table(values, title), folded=True)
        for title, values in tables.items()
        if isinstance(values, dict) and values
    ]
