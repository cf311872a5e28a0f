"""Sections of a run's page for later results: samples, walks, completions, embeddings, evaluations, FID and KID."""

import re
from typing import Any

import numpy as np

from vages.app.report.page.document import Section
from vages.app.report.page.embedded import figure
from vages.app.report.page.markup import Markup, as_float, element, is_number, joined
from vages.app.report.page.reading import Reader
from vages.app.report.page.scatter import principal_plane, scatter_plot
from vages.app.report.page.tables import records_table, settings_table
from vages.app.report.page.walks import walk_figure

_FOLDER = re.compile(r"(samples|interpolation|inpainting|embedding|evaluation|quality)-(\d{1,9})")
_MEANS = 10_000  # posterior means of an embedding, at most


def gallery_sections(reader: Reader) -> list[Section]:
    """Return sections with the newest results of each kind, RUN/KIND-NUMBER; problems go to `reader.problems`."""
    kinds: dict[str, list[tuple[int, Reader]]] = {}
    for name in reader.directory.names():
        if (found := _FOLDER.fullmatch(name)) and (inner := reader.inner(name)) is not None:
            kinds.setdefault(found[1], []).append((int(found[2]), inner))
    sections = []
    for kind, (title, most, build) in _KINDS.items():
        newest = sorted(kinds.get(kind, []), key=lambda numbered: numbered[0], reverse=True)
        parts, rows = [], True
        for _, own in newest[:most]:
            about, name = own.object("result.json"), own.folder.name
            rows = rows and _of_rows(about)
            try:
                body = build(own, about, name)
            except ValueError as error:
                own.problems.append(str(error))
                body = Markup("")
            parts.append(element("div", element("h3", name), body, _provenance(about)))
            reader.problems += [f"{name}: {problem}" for problem in own.problems]
        more = len(newest) - len(parts)
        told = element("p", f"The folder has {more} more.", class_="note") if more else ""
        if parts:
            title = title.replace("images", "rows") if rows else title
            sections.append(Section(title, joined([element("div", *parts, class_="made" if most > 1 else None), told])))
    return sections


def _samples(reader: Reader, about: dict[str, Any], name: str) -> Markup:
    if _of_rows(about):
        caption = "Draws of the model beside held-out examples."
        return _picture(
            reader, "samples.png", f"Draws of the model beside held-out rows, {name}", caption, pixels=False
        )
    return _picture(reader, "samples.png", f"A grid of images drawn from the model, {name}")


def _inpainting(reader: Reader, about: dict[str, Any], name: str) -> Markup:
    if _of_rows(about):
        drawn, held = (str(about.get(key, "not recorded"))[:300] for key in ("drawn", "held"))
        caption = (
            f"Original examples and completions, for which the drawn entries were hidden. Drawn: {drawn}. Held: {held}."
        )
        return _picture(reader, "inpainting.png", f"Rows and their completions, {name}", caption, pixels=False)
    caption = "Rows: the original images, their known pixels, and completions, which depend on these pixels only."
    return _picture(reader, "inpainting.png", f"Images, their hidden parts and completions, {name}", caption)


def _interpolation(reader: Reader, about: dict[str, Any], name: str) -> Markup:
    """Return the walk if its arrays can be read, else the picture."""
    arrays, steps = reader.arrays("interpolation.npz"), about.get("snapshots")
    line, unit = ("factors", " m") if "factors" in arrays else ("along", " of the way")
    numbers = [arrays[key] for key in ("trajectory", line) if key in arrays and arrays[key].dtype.kind == "f"]
    if len(numbers) == 2 and numbers[1].ndim == 1 and isinstance(steps, list):
        moments = [int(x) if np.isfinite(x := as_float(step)) else 0 for step in steps]
        return walk_figure(numbers[0], numbers[1], moments, f"An interpolation, {name}", unit)
    ends = _ends(about)
    if _of_rows(about):
        caption = f"Draws of v given h on the line from {ends[0]} to {ends[1]}; no coordinate of v is held."
        return _picture(
            reader, "interpolation.png", f"An interpolation between two rows, {name}", caption, pixels=False
        )
    caption = f"From {ends[0]} to {ends[1]}, which are shown at the two ends." if "between" in about else ""
    return _picture(reader, "interpolation.png", f"Images along a line in the latents, {name}", caption)


def _ends(about: dict[str, Any]) -> list[str]:
    """Return the names of the two ends of a walk."""
    named = about.get("between")
    if isinstance(named, list) and len(named) == 2:
        return [str(one)[:100] for one in named]
    ends = about.get("training_rows")  # in early results, which had no files
    ends = ends if isinstance(ends, list) and len(ends) == 2 and all(map(is_number, ends)) else ["?", "?"]
    return [f"training row {one}" for one in ends]


def _embedding(reader: Reader, about: dict[str, Any], name: str) -> Markup:
    """Return a scatter plot of the posterior means, and the accuracies of linear classifiers."""
    parts, what = [], "rows" if _of_rows(about) else "images"
    arrays = reader.arrays("embedding.npz")
    split = next((key for key in ("given", "test", "train") if key in arrays and arrays[key].size), None)
    if split is not None:
        means = arrays[split].reshape(len(arrays[split]), -1)[:_MEANS]
        labels = arrays.get(f"{split}_labels")
        if labels is not None:
            labels = labels.astype(np.int64)[:_MEANS] if labels.dtype.kind in "iu" and labels.ndim == 1 else None
            labels = labels if labels is not None and len(labels) == len(means) else None
        if (
            means.dtype.kind == "f"
            and np.isfinite(means).all()
            and np.abs(means).max() < 1e6
            and means.shape[1] <= 4096
        ):
            plane, share = principal_plane(means.astype(np.float64))
            means_of = f"the {what} of {str(about.get('examples'))[:100]}" if split == "given" else f"{split} {what}"
            caption = f"Posterior means of {means_of} on the plane of their largest variance, {share:.0%} of it."
            parts.append(scatter_plot(plane, labels, f"A scatter of posterior means, {name}", caption))
    probe = about.get("linear probe")
    if isinstance(probe, dict):
        accuracies = [
            {"classifier of": key, **probe[key]} for key in ("means", "pixels") if isinstance(probe.get(key), dict)
        ]
        others = {key: x for key, x in probe.items() if not isinstance(x, dict)}
        table = records_table(accuracies, f"Accuracy of linear classifiers on test {what}")
        parts.append(element("div", table, settings_table(others, "Linear classifiers")))
    return element("div", *parts, class_="made")


def _evaluation(reader: Reader, about: dict[str, Any], name: str) -> Markup:
    """Return the table of an evaluation, and its pictures."""
    rows = about.get("rows")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    picture = reader.picture("evaluation.png")
    drawn = figure(picture, f"Numbers of the evaluation and their standard errors, {name}", "") if picture else ""
    chains = reader.picture("chains.png") if reader.directory.has_file("chains.png") else None
    mixing = (
        figure(chains, f"Traces, autocorrelations and marginals of the model's chains, {name}", "") if chains else ""
    )
    return element("div", records_table(rows, "How far the model is from the data"), drawn, mixing)


def _quality(reader: Reader, about: dict[str, Any], name: str) -> Markup:
    """Return the table of FID and KID, with those of real images and the reference."""
    shown = ("kid", "extrapolated", "real", "n", "reference", "preprocessing", "gray")
    numbers = {str(about.get("metric")): about.get("fid"), **{key: about[key] for key in shown if key in about}}
    return settings_table(numbers, "FID and KID of samples of the model")


_KINDS = {  # the title, how many are shown, and the function that builds the section
    "samples": ("Drawn samples", 2, _samples),
    "interpolation": ("Interpolation in the latents", 1, _interpolation),
    "inpainting": ("Completed images", 2, _inpainting),
    "embedding": ("Embedding", 1, _embedding),
    "evaluation": ("Evaluation", 2, _evaluation),
    "quality": ("FID and KID", 2, _quality),
}


def _of_rows(about: dict[str, Any]) -> bool:
    """Whether a result is of rows or points rather than of images."""
    return about.get("of") == "rows"


def _picture(reader: Reader, name: str, alt: str, caption: str = "", *, pixels: bool = True) -> Markup:
    picture = reader.picture(name)
    return Markup("") if picture is None else figure(picture, alt, caption, pixels=pixels)


def _provenance(about: dict[str, Any]) -> Markup:
    """Return one line on how a result was made; that of FID and KID has a part about it."""
    about = how if isinstance(how := about.get("sampling"), dict) else about
    told = [str(about["protocol"])[:300]] if "protocol" in about else []
    if "checkpoint" in about:
        weights = f"{str(about['weights'])[:80]}, " if "weights" in about else ""  # an evaluation names none
        told.append(f"{weights}checkpoint of step {str(about['checkpoint'])[:20]}")
    told += [f"seed {about['seed']}"] if is_number(about.get("seed")) else []
    data = about.get("data")
    if isinstance(data, dict) and data.get("own") is False:
        told.append(f"on {str(data.get('name'))[:200]}, not on the run's own data")
    chains = about.get("diverged chains")
    if isinstance(chains, dict):
        told.append(f"{str(chains.get('count'))[:20]} of {str(chains.get('of'))[:20]} chains diverged")
    return element("p", "; ".join(told), ".", class_="note") if told else Markup("")
