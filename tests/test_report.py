"""`vages report`: the page shows the contents of the files, whatever they are, and loads nothing else."""

import base64
import io
import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from errors import refused
from fake_runs import HOSTILE, deep_run, event, experiment, grbm_run, metric_rows, walk, write, write_rows
from small_recipes import with_settings
from vages.app.cli.comparing import compare as compare_command
from vages.app.cli.parsing import parse
from vages.app.cli.reporting import report
from vages.app.cli.training import train
from vages.app.recipes import as_recipe
from vages.app.report.page.axes import Axis, axis_of, log_marks, round_marks
from vages.app.report.page.embedded import WIDEST, Picture
from vages.app.report.page.markup import Markup, duration, element, embedded_json, escape, number, written
from vages.app.report.page.metrics import metric_panels
from vages.app.report.page.scatter import principal_plane
from vages.app.report.page.summaries import run_status
from vages.app.report.page.svg_curves import Line, Panel, curve_figure
from vages.app.report.page.thinning import thin
from vages.app.runs import config_of, report_watch
from vages.app.runs.commands import reproduce_command, train_command
from vages.app.runs.comparison import compare
from vages.app.runs.report_watch import watch_report
from vages.app.runs.reports import build_report, write_report
from vages.app.settings import ALL, CHECKERBOARD, DEEP_PRESETS, FREYFACE, PRESETS
from vages.training import RunFolder

VOID = {"meta", "img", "input", "br", "wbr"}
OWN = {name: files("vages.app.report.page").joinpath(name).read_text() for name in ("style.css", "script.js")}


class Page(HTMLParser):
    """The elements of a page with their attributes and texts; mismatched tags raise an error."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        one = SimpleNamespace(tag=tag, attrs=dict(attrs), text="")
        assert len(one.attrs) == len(attrs)
        self.elements.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        for one in self.open:
            one.text += data

    def all(self, tag, **attrs):
        return [x for x in self.elements if x.tag == tag and all(x.attrs.get(k) == v for k, v in attrs.items())]

    @property
    def text(self):
        return self.all("body")[0].text

    @property
    def numbers(self):
        return {x.attrs["value"] for x in self.all("data")}

    @property
    def data(self):
        return [json.loads(x.text) for x in self.all("script", type="application/json")]


def page_of(folder):
    return Page(build_report(folder))


def check(page):
    """Requirements of every page: it is self-contained, runs only its own script, and is accessible."""
    ids = [x.attrs["id"] for x in page.elements if "id" in x.attrs]
    assert len(ids) == len(set(ids))
    for x in page.elements:
        assert not [name for name in x.attrs if name.startswith("on")]
        if "href" in x.attrs:
            assert x.attrs["href"].removeprefix("#") in ids
        if "src" in x.attrs:
            assert re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", x.attrs["src"])
        if x.tag == "img":
            assert x.attrs["alt"]
    assert {x.tag for x in page.elements}.isdisjoint({"iframe", "object", "embed", "link", "base", "form", "audio"})
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    wanted = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    assert policy.attrs["content"].startswith(wanted)
    scripts = [x.text for x in page.all("script") if "type" not in x.attrs]
    assert scripts == [OWN["script.js"]]
    assert [x.text for x in page.all("style")] == [OWN["style.css"]]
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert page.all("html")[0].attrs["lang"] == "en"


def titles(page):
    return [x.text for x in page.all("h2")]


# pages of complete runs


def test_page_of_a_grbm(tmp_path):
    folder = grbm_run(tmp_path / "run")
    page = page_of(folder)
    check(page)
    wanted = ["Curves", "Density", "Samples", "Events", "Run it again", "Result", "Settings", "Environment"]
    assert titles(page) == wanted
    assert len(page.all("img")) == 2
    result = json.loads((folder / "result.json").read_text())
    assert repr(result["test_log_likelihood"]["mean"]) in page.numbers
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    likelihood, loss = page.data
    for curve, name in ((likelihood, "test_log_likelihood"), (loss, "loss")):
        (line,) = curve["lines"]
        assert line["x"] == [row["step"] for row in rows]
        np.testing.assert_allclose(line["y"], [row[name][0] for row in rows], rtol=1e-6)
        assert {repr(rows[-1][name][0]), repr(max(row[name][0] for row in rows))} <= page.numbers
    assert "log 2, of the true distribution" in page.text
    assert "finished" in page.text
    assert "vages train checkerboard --steps 4000 --out NEW_FOLDER" in page.text
    assert not page.all("aside")


def test_the_losses_of_several_seeds_have_a_mean_and_a_spread(tmp_path):
    folder = grbm_run(tmp_path / "run")
    write(folder, "result.json", {"steps": 4000, "loss": {"mean": 98.8291, "each seed": [97.8291, 99.8291]}})
    told = page_of(folder).all("dl")[0].text
    assert "last loss98.829 ± 1.4seeds2" in told
    write(folder, "result.json", {"steps": 4000, "loss": {"mean": 98.8291, "each seed": [98.8291]}})
    assert "last loss98.829iterations" in page_of(folder).all("dl")[0].text


def test_page_of_a_deep_run_with_all_that_was_made_of_it(tmp_path):
    page = page_of(deep_run(tmp_path / "run"))
    check(page)
    made = ["Drawn samples", "Interpolation in the latents", "Completed images", "Embedding"]
    assert titles(page)[:6] == ["Curves", "Samples", *made]
    headings = [x.text for x in page.all("h3")]
    assert [name for name in headings if name.startswith("samples")] == ["samples-11", "samples-2"]
    assert "The folder has 1 more." in page.text
    assert "protocol of 11; averages, checkpoint of step 3000; seed 7; 0 of 20 chains diverged." in page.text
    assert "0.71234567" in page.numbers
    assert [x for x in page.all("img") if "chains, evaluation-1" in x.attrs["alt"]]
    assert "checkpoint of step 3000; seed 0." in page.text
    assert "None" not in page.text
    assert "checkpoint refused" in page.text
    assert "expected a SHA-256 sum" in page.text
    texts = page.all("text")
    assert sorted(x.text for x in texts) == [str(digit) * 6 for digit in range(10)]
    assert len(page.all("input", type="range")) == 2


@pytest.mark.parametrize(
    ("recipe", "verbs", "pixels"),
    [
        (CHECKERBOARD, "sample interpolate inpaint embed", False),
        (ALL["board"], "sample interpolate inpaint embed", False),
        (ALL["digits"], "sample interpolate inpaint embed", True),
        (replace(ALL["digits"], latents=0), "sample interpolate inpaint", True),
        (ALL["digits-paper"], "sample interpolate inpaint embed", True),
    ],
)
def test_pages_name_the_commands_that_draw_from_the_model(tmp_path, recipe, verbs, pixels):
    folder = grbm_run(tmp_path / "run")
    write(folder, "config.json", config_of(as_recipe(recipe)))
    page = page_of(folder)
    (commands,) = [x.text.splitlines() for x in page.all("code") if "vages report" in x.text]
    assert [line.split()[1] for line in commands] == [*verbs.split(), "report"]
    (samples,) = [x for x in page.all("img") if x.attrs["alt"].startswith("Samples")]
    assert (samples.attrs.get("class") == "pixels") == pixels


def test_page_of_an_experiment(tmp_path):
    page = page_of(experiment(tmp_path / "fig1"))
    check(page)
    wanted = ["Claims", "Figures", "Curves", "Run it again", "Measurements", "Settings", "Environment"]
    assert titles(page) == wanted
    claims = [x.text for x in page.all("li") if x.attrs.get("class") in ("good", "bad")]
    assert [text.partition("VaGES")[0] for text in claims[:2]] == ["✓ holds", "✗ does not hold"]
    assert "1 of 3 claims hold" in page.text
    assert "The result is invalid" in page.text
    assert "not a number" in claims[2]
    assert {"1.23456789012", "7.9265", "1e-05"} <= page.numbers
    assert "1,000 numbers from 0 to 999" in page.text
    assert "vages reproduce fig1 --quick --seed 3 --out NEW_FOLDER" in page.text
    assert [line["name"] for line in page.data[0]["lines"]] == ["a", "b"]


def test_the_page_is_a_function_of_the_folder_and_replaces_itself(tmp_path, capsys):
    folder = grbm_run(tmp_path / "run")
    path = write_report(folder)
    first = path.read_bytes()
    assert path == folder / "report.html"
    assert write_report(folder).read_bytes() == first
    assert report(folder, tmp_path / "new" / "page.html", json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"report": str(tmp_path / "new" / "page.html"), "bytes": len(first)}
    assert report(folder) == 0
    assert "report.html" in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path):
    with refused("run"):
        write_report(tmp_path)
    with refused("run"):
        write_report(tmp_path / "nowhere")
    folder = grbm_run(tmp_path / "run")
    for out in (tmp_path / "page.pdf", tmp_path):
        with pytest.raises(ValueError, match=r"^out: .*\.html"):
            write_report(folder, out)


# unfinished runs


@pytest.mark.parametrize(
    ("events", "result", "status"),
    [
        (["started", "finished"], {"interrupted": False}, "finished"),
        (["started", "finished"], {"interrupted": True}, "interrupted"),
        (["started", "interrupted"], {"interrupted": True}, "interrupted"),
        (["started", "interrupted", "resumed", "finished"], {"interrupted": False}, "finished"),
        (["started", "recovered", "diverged"], {}, "diverged"),
        (["started", "finished", "resumed"], {"interrupted": False}, "not finished"),
        (["started", "recovered"], {}, "not finished"),
        ([], {"steps": 3}, "finished"),
        ([], {}, "not finished"),
    ],
)
def test_how_a_run_stands(events, result, status):
    word, tone, told = run_status([event(name) for name in events], result, [{"step": 700}])
    assert word == status
    assert (tone == "good") == (status == "finished")
    assert ("iteration 700" in told) == (status == "not finished")


@pytest.mark.parametrize(
    ("make", "config", "wanted"),
    [
        (grbm_run, {}, "run --steps 8000"),
        (grbm_run, {"decay": "cosine"}, "need a new run"),
        (deep_run, {}, "need a new run"),
    ],
)
def test_a_finished_run_has_nothing_to_go_on_with(tmp_path, make, config, wanted):
    """The page suggests more steps only if the learning rate does not depend on their number."""
    folder = make(tmp_path / "run", **config)
    text = page_of(folder).text
    assert wanted in text
    assert "To resume it where it stopped" not in text
    write_rows(folder, "events.jsonl", [event("started"), event("interrupted")])
    assert "To resume it where it stopped" in page_of(folder).text
    write_rows(folder, "events.jsonl", [event("started"), event("diverged")])
    assert "To resume it where it stopped" not in page_of(folder).text  # there is no checkpoint


@pytest.mark.parametrize("of", ["log", "checkpoint"])
def test_a_result_from_before_a_resume_is_not_shown(tmp_path, of):
    """A finished run is resumed and killed, or still training; its pictures say when they were drawn."""
    folder = grbm_run(tmp_path / "run", steps=9000)
    result = json.loads((folder / "result.json").read_text())
    write(folder, "result.json", result | {"health": {"warnings": ["narrow samples"], "notices": []}})
    write_rows(folder, "events.jsonl", [event("started"), event("finished", step=4000)])
    assert "narrow samples" in page_of(folder).text
    write_rows(folder, "events.jsonl", [event("started"), event("finished", step=4000), event("resumed", step=4000)])
    if of == "log":
        write_rows(folder, "metrics.jsonl", metric_rows(45, 1))
    else:
        (folder / "checkpoints" / "step-000000004500").mkdir(parents=True)
    for page in (page_of(folder), Page(build_report(folder, live=True))):
        check(page)
        assert {"Density after 4,000 iterations", "Samples after 4,000 iterations"} <= set(titles(page))
        assert "Result" not in titles(page)
        assert "narrow samples" not in page.text
        assert "test log-likelihood" not in page.all("dl")[0].text
        assert ("4,500 of 9,000" in page.all("dl")[0].text) == (of == "log")
    one, other = compare([grbm_run(tmp_path / "one"), folder]).results[1]
    assert (one, other) == ("steps", [4000, 4500 * (of == "checkpoint")])


def test_runs_that_differ_in_recipe_data_or_start_are_told_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    own = {"format": 2, "recipe": "mine.py:recipe", "settings": {"steps": 5}}
    begun = {"run": "/runs/first", "step": 200, "sha256": "e"}
    for name, digest, more in (("a", "a", {}), ("b", "b", {"from": begun}), ("c", "a", {})):
        write(Path(name), "config.json", own | more | {"sha256": 64 * digest})
        part = {"shape": [9, 2], "dtype": "float32", "sha256": 64 * digest}
        data = {"path": f"/{name}.csv", "train": part, "validation": part, "test": part}
        write_rows(Path(name), "events.jsonl", [event("started", dataset=data)])
    differ = compare([Path("a"), Path("b")]).record()["settings"]
    assert differ["SHA-256 of the recipe"] == [12 * "a", 12 * "b"]
    assert differ["from"] == [None, "/runs/first, step 200"]
    assert len(set(differ.pop("fingerprint of the data"))) == 2
    assert len(differ) == 2
    assert compare_command([Path("a"), Path("c")]) == 0
    assert capsys.readouterr().out.startswith("settings that differ: none\n")
    with refused("runs"):
        compare([Path("a"), Path("b"), tmp_path / "a"])


def test_page_of_a_diverged_run(tmp_path):
    folder = tmp_path / "run"
    write(folder, "config.json", config_of(as_recipe(CHECKERBOARD)))
    problem = "expected a finite loss, got nan at iteration 7"
    write_rows(
        folder, "events.jsonl", [event("recovered", problem=problem, rate=0.5), event("diverged", problem=problem)]
    )
    rows = metric_rows(3, 1)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text + json.dumps(rows[-1])[:30])  # truncated
    page = page_of(folder)
    check(page)
    assert f"Training diverged: {problem}." in page.text
    assert not page.all("aside")  # normal after a killed process
    assert len(page.data[0]["lines"][0]["x"]) == 3
    assert "recoveries" in page.text


# untrusted files


def test_nothing_in_the_files_becomes_part_of_the_page(tmp_path):
    run = grbm_run(tmp_path / "run", **dict.fromkeys(("data", "method", HOSTILE), HOSTILE))
    write_rows(run, "metrics.jsonl", [{"step": i, HOSTILE: i} for i in range(5)])
    write_rows(run, "events.jsonl", [{"time": HOSTILE, "event": HOSTILE, HOSTILE: [HOSTILE]}])
    write(run, "environment.json", {HOSTILE: {HOSTILE: HOSTILE}})
    claim = {"claim": HOSTILE, "value": HOSTILE, "bound": HOSTILE, "holds": HOSTILE}
    curve = {HOSTILE: {"steps": [1, 2], "curve": [1, 2]}, "rows": [{HOSTILE: HOSTILE}]}
    one = experiment(tmp_path / "one", experiment=HOSTILE, claims=[claim, HOSTILE, None], measurements=curve)
    deep = deep_run(tmp_path / "deep", data=HOSTILE)
    write(deep / "evaluation-1", "result.json", {"rows": [{HOSTILE: HOSTILE}], "seed": HOSTILE})
    for name in ("samples-1", "embedding-1"):
        write(deep / name, "result.json", {"protocol": HOSTILE, "weights": HOSTILE, "checkpoint": HOSTILE})
    shown = HOSTILE.translate({0x202E: "�", 0: "�"})
    for folder in (run, one, deep):
        page = page_of(folder)
        check(page)
        assert shown in page.text


def test_an_evaluation_is_on_the_page(tmp_path):
    page = page_of(deep_run(tmp_path / "run"))
    text = page.text
    assert "Evaluation" in text
    assert "KSD p-value" in text
    assert "of a model that is right" in text
    assert any("Numbers of the evaluation" in image.attrs["alt"] for image in page.all("img"))


def test_fid_and_kid_are_on_the_page(tmp_path):
    page = page_of(deep_run(tmp_path / "run"))
    check(page)
    assert "FID and KID" in titles(page)
    (table,) = [one.text for one in page.all("table") if one.text.startswith("FID and KID")]
    assert {"45.6789", "0.0212", "3.0625"} <= page.numbers
    assert "FID-10k" in table
    assert "real › fid" in table
    assert "joint; averages, checkpoint of step 3000; seed 4; 0 of 20 chains diverged." in page.text


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return deep_run(tmp_path_factory.mktemp("runs") / "deep")


ODD = [
    None,
    True,
    "text",
    math.nan,
    math.inf,
    -1e308,
    10**400,
    [],
    {},
    [[1]],
    {"a": {"b": [None]}},
    "\ud800",
    [None, "x", 1],
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_any_value_in_any_place_is_shown(tmp_path, deep, odd):
    run = shutil.copytree(deep, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    write(run, "config.json", config | {"settings": dict.fromkeys(config["settings"], odd)})
    check(page_of(run))
    write(run, "config.json", dict.fromkeys(config, odd))
    write(
        run, "result.json", dict.fromkeys(("test_log_likelihood", "steps", "seconds", "loss", "diverged chains"), odd)
    )
    write_rows(run, "metrics.jsonl", [odd, {"step": odd}, {"step": 1, "loss": odd}, {"step": 2, "loss": 3.0}])
    write_rows(run, "events.jsonl", [odd, {"event": odd, "time": odd, "problem": odd}])
    for made in ("samples-11", "interpolation-1", "embedding-1", "quality-1"):
        about = json.loads((run / made / "result.json").read_text())
        write(run / made, "result.json", dict.fromkeys(about, odd))
    check(page_of(run))
    one = experiment(tmp_path / "one")
    record = json.loads((one / "result.json").read_text())
    claim = dict.fromkeys(("claim", "value", "bound", "holds"), odd)
    measured = {"a": odd, "b": {"steps": odd, "curve": odd}, "c": {"steps": [1], "curve": [odd]}, "d": [{"x": odd}]}
    (one / "fig1.png").unlink()
    others = [dict.fromkeys(record, odd), record | {"claims": [claim, odd], "measurements": measured}]
    for changed in [*({**record, name: odd} for name in ("claims", "measurements", "settings")), *others]:
        write(one, "result.json", changed)
        check(page_of(one))


def test_damage_is_told_on_the_page(tmp_path):
    folder = deep_run(tmp_path / "run")
    (folder / "config.json").write_bytes(b"[" * 100_000)
    (folder / "result.json").write_text("[1]")
    (folder / "environment.json").write_bytes(b"\xff\xfe")
    lines = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text("{broken\n" + lines)
    with open(folder / "metrics.jsonl", "wb") as file:
        file.truncate(2**27 + 1)
    (folder / "samples.png").write_bytes((folder / "samples.png").read_bytes()[:-20])
    for name in ("interpolation-1/interpolation.npz", "embedding-1/embedding.npz"):
        (folder / name).write_bytes(b"PK\x03\x04")
    page = page_of(folder)
    check(page)
    (notice,) = page.all("aside")
    for name in ("config.json", "result.json", "environment.json", "metrics.jsonl", "samples.png", "interpolation.npz"):
        assert name in notice.text
    assert "events.jsonl: 1 line could not be read" in notice.text
    assert "Drawn samples" in titles(page)


def test_long_texts_and_many_entries_make_a_small_page(tmp_path):
    long = "x" * 100_000
    run = grbm_run(tmp_path / "run")
    settings = {"data": long} | {f"{long}{i}": long for i in range(5)}
    write(run, "config.json", with_settings(config_of(as_recipe(CHECKERBOARD)), **settings))
    many = {f"name {i}": i for i in range(1000)}
    write_rows(run, "metrics.jsonl", [{"step": i, f"{long}{i % 2}": 1.0, **many} for i in range(3)])
    write_rows(run, "events.jsonl", [event(long, **many, **{long: long})] * 500)
    write(run, "result.json", {"steps": long, "deep": many, **many})
    claims = [{"claim": long, "value": long, "bound": 1, "holds": True}] * 500
    measured = {f"rows {i}": [many] * 210 for i in range(2)} | {long: {"steps": [1], "curve": [1]}, "list": [long] * 9}
    one = experiment(tmp_path / "one", experiment=long, claims=claims, measurements=measured, settings=many)
    for folder in (run, one):
        text = build_report(folder)
        check(Page(text))
        assert len(text) < 2**20


def test_a_walk_that_does_not_fit_its_record_is_told(tmp_path):
    folder = deep_run(tmp_path / "run")
    about = json.loads((folder / "interpolation-1" / "result.json").read_text())
    write(folder / "interpolation-1", "result.json", about | {"snapshots": [1, 2]})
    page = page_of(folder)
    check(page)
    assert "got (6, 4)" in page.text


# helper functions


def test_elements_escape_all_but_markup():
    assert element("p", "<b>", Markup("<b></b>"), title='"') == '<p title="&quot;">&lt;b&gt;<b></b></p>'
    assert element("input", class_="x", data_axis="h", hidden=True, disabled=False, value=None) == (
        '<input class="x" data-axis="h" hidden>'
    )
    assert escape("a\u202eb\x00\ud800\n") == "a�b��\n"
    assert json.loads(embedded_json("</script><!--&")) == "</script><!--&"
    assert not set("<>&") & set(embedded_json("</script><!--&"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0, "0"),
        (-1.5, "−1.5"),
        (1234567, "1,234,567"),
        (0.401531, "0.40153"),
        (318802.94, "318,803"),
        (1e-5, "1e−5"),
        (-2.5e12, "−2.5e12"),
        (math.nan, "not a number"),
        (-math.inf, "−∞"),
        (10**400, "very large"),
        (99999.96, "100,000"),
        (1e-4, "0.0001"),
        (100.0, "100"),
    ],
)
def test_numbers_to_read(value, text):
    assert written(value) == text
    assert number(value).endswith(f">{text}</data>")


def test_durations():
    assert [duration(x) for x in (0.5, 70.0, 150, 8000.0, math.nan)] == [
        "0.5 s",
        "70 s",
        "2 min 30 s",
        "2 h 13 min",
        "not a number",
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 3), st.integers(0, 2**32 - 1), st.floats(0, 0.2))
def test_thinning_keeps_the_envelope(rows, columns, seed, gaps):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(rows, columns)) ** 3
    values[draw.uniform(size=values.shape) < gaps] = np.nan
    kept = thin(values, 600)
    assert (np.diff(kept) > 0).all()
    assert {0, rows - 1} <= set(kept.tolist())
    assert len(kept) <= 2 + 600 * 3 // 2
    for column, few in zip(values.T, values[kept].T, strict=True):
        assert np.isnan(few).any() == np.isnan(column).any()
        if rows <= 600:
            continue
        buckets = np.array_split(np.arange(rows), max(600 // (2 * columns), 50))
        for first, last in ((part[0], part[-1]) for part in buckets):
            whole, some = column[first : last + 1], column[kept[(kept >= first) & (kept <= last)]]
            if np.isfinite(whole).any():
                assert (np.nanmin(whole), np.nanmax(whole)) == (np.nanmin(some), np.nanmax(some))


def test_a_spike_among_thousands_stays_on_the_page():
    values = np.zeros((50_000, 1))
    values[31_337], values[12_345] = 7.25, -3.5
    panel = Panel("loss", "iteration", (Line("loss", np.arange(50_000.0), values),))
    (curve,) = Page(curve_figure(panel)).data
    line = curve["lines"][0]
    assert len(line["x"]) < 3000
    assert (31337, 7.25) in zip(line["x"], line["y"], strict=True)
    assert (12345, -3.5) in zip(line["x"], line["y"], strict=True)


@pytest.mark.parametrize(("seeds", "thin_lines", "bands"), [(1, 0, 0), (2, 2, 0), (8, 8, 0), (9, 0, 1), (40, 0, 1)])
def test_seeds_are_lines_or_a_band(seeds, thin_lines, bands):
    (panel,) = metric_panels([{"step": i, "loss": [float(i + k) for k in range(seeds)]} for i in range(1, 6)], {})
    page = Page(curve_figure(panel))
    kinds = [x.attrs["class"] for x in page.all("path")]
    assert (kinds.count("seed"), kinds.count("band"), kinds.count("line")) == (thin_lines, bands, 1)
    (line,) = page.data[0]["lines"]
    assert line["y"] == [i + (seeds - 1) / 2 for i in range(1, 6)]
    if seeds > 1:
        assert line["low"] == [1, 2, 3, 4, 5]
        assert line["high"] == [i + seeds - 1 for i in range(1, 6)]


def test_paths_are_where_the_numbers_are():
    x, y = np.array([0.0, 5.0, 10.0, 20.0]), np.array([[1.0], [np.nan], [2.0], [3.0]])
    page = Page(curve_figure(Panel("loss", "iteration", (Line("loss", x, y),))))
    (curve,) = page.data
    (path,) = page.all("path")
    low, high = curve["y"]
    at = lambda step, value: f"{50 * step:.2f} {1000 * (high - value) / (high - low):.2f}"
    assert path.attrs["d"] == f"M{at(0, 1)}h0M{at(10, 2)}h0L{at(20, 3)}"
    assert curve["lines"][0]["y"] == [1, None, 2, 3]
    assert "1 values are not finite" in page.all("figcaption")[0].text


def test_axes():
    assert round_marks(0.0, 10.0, 5) == [0, 2, 4, 6, 8, 10]
    assert round_marks(-0.31, 0.29, 5) == pytest.approx([-0.2, 0, 0.2])
    assert log_marks(0.0, 3.0) == [1, 10, 100, 1000]
    assert log_marks(0.41, 0.44) is None
    wide = axis_of(np.array([1.0, 1e4, np.nan, np.inf]), may_log=True)
    assert wide == Axis(0.0, 4.0, log=True)
    np.testing.assert_allclose(wide.place(np.array([1.0, 100.0, 1e4])), [0, 0.5, 1])
    assert not axis_of(np.array([-1.0, 1e4]), may_log=True).log
    assert not axis_of(np.array([1.0, 50.0]), may_log=True).log
    for values in ([], [3.0], [0.0, 0.0], [1e-300, 2e-300], [5e8, 5e8 + 1e-3], [np.nan]):
        axis = axis_of(np.array(values), margin=0.05, may_log=True)
        assert axis.high > axis.low
        assert all(-1e-6 <= at <= 1 + 1e-6 for at, _ in axis.ticks(5))


def test_the_sheet_of_a_walk_holds_every_image_in_its_place(tmp_path):
    folder = deep_run(tmp_path / "run")
    page = page_of(folder)
    (sheet,) = [x for x in page.all("img") if "sheet" in x.attrs.get("class", "")]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet.attrs["src"].partition(",")[2]))))
    assert pixels.shape == (4 * 8, 6 * 8)
    grays = np.rint(255 * np.linspace(0, 1, 24).reshape(6, 4)).T  # rows are chains, columns moments
    np.testing.assert_array_equal(pixels[::8, ::8], grays)
    labels = next(x for x in page.data if "rows" in x)
    assert labels == {
        "rows": ["1 m", "0.333 m", "−0.333 m", "−1 m"],
        "columns": ["450", "900", "1,350", "1,800", "2,250", "2,700"],
    }


def test_a_large_walk_keeps_its_ends_and_a_small_page(tmp_path):
    folder = grbm_run(tmp_path / "run")
    walk(folder / "interpolation-3", {}, moments=40, chains=50, side=64)
    text = build_report(folder)
    labels = next(x for x in Page(text).data if "rows" in x)
    assert (labels["rows"][0], labels["rows"][-1]) == ("1 m", "−1 m")
    assert (labels["columns"][0], labels["columns"][-1]) == ("450", "18,000")
    assert len(labels["rows"]) == len(labels["columns"]) == 16
    assert len(text) < 2**20


def test_large_pictures_are_made_smaller():
    noise = np.random.default_rng(0).integers(0, 255, (900, 2600, 3), dtype=np.uint8)
    picture = Picture.of(Image.fromarray(noise))
    assert (picture.width, picture.height) == (WIDEST, 443)
    assert len(picture.uri) < 1.5e6


def test_thousands_of_rows_of_many_seeds_make_a_small_page(tmp_path):
    folder = grbm_run(tmp_path / "run")
    write_rows(folder, "metrics.jsonl", metric_rows(3000, 12))
    assert len(build_report(folder)) < 2**20


def test_principal_plane_is_that_of_the_singular_vectors():
    values = np.random.default_rng(0).normal(size=(50, 5)) * [5, 1, 3, 0.1, 0.2]
    plane, share = principal_plane(values)
    singular = np.linalg.svd(values - values.mean(0), compute_uv=False)
    np.testing.assert_allclose(np.sqrt((plane**2).sum(0)), singular[:2])
    assert share == pytest.approx((singular[:2] ** 2).sum() / (singular**2).sum())
    assert principal_plane(values[:, :1])[0].shape == (50, 2)


# the command that trains the same recipe


def trained_by(command, monkeypatch):
    """The recipe that a command would train."""
    caught = []
    monkeypatch.setattr("vages.app.cli.training._trained", lambda recipe, *_: caught.append(recipe.settings) or 0)
    words = shlex.split(command)
    assert words[:2] == ["vages", "train"]
    positional, named = parse("train", words[2:])
    assert train(*positional, **named) == 0
    return caught[0]


RECIPES = [
    *PRESETS.values(),
    *DEEP_PRESETS.values(),
    replace(CHECKERBOARD, method="vages-ksd", seeds=3, learning_rate=3e-7, control_variate=True, sigma=0.123456789),
    replace(FREYFACE, steps=7, data="-odd name's.npz"),
    replace(DEEP_PRESETS["mnist-paper"], clip=1.0, flips=True, seed=5),
    replace(DEEP_PRESETS["digits-paper"], ema=None),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.data}-{recipe.steps}")
def test_the_command_makes_the_same_recipe(recipe, monkeypatch):
    config = json.loads(json.dumps(config_of(as_recipe(recipe))))
    found = train_command(config)
    assert found is not None
    command, lost = found
    assert lost == []
    assert trained_by(command, monkeypatch) == recipe


def test_the_command_begins_with_the_same_model():
    config = config_of(as_recipe(CHECKERBOARD)) | {"from": {"run": "/runs/the first", "step": 200}}
    assert train_command(config) == ("vages train checkerboard --from '/runs/the first' --out NEW_FOLDER", [])


def test_what_no_option_can_set_is_told(tmp_path):
    own = {"format": 2, "recipe": "mine.py:recipe", "settings": {"steps": 5, "sizes": [1, 2]}}
    found = train_command(own)
    assert found == ("vages train mine.py --steps 5 --out NEW_FOLDER", ["sizes"])
    assert train_command(own, "data/p 1.csv") == (
        "vages train mine.py --steps 5 --data 'data/p 1.csv' --out NEW_FOLDER",
        ["sizes"],
    )
    assert train_command({"model": "other"}) is None
    assert train_command(with_settings(config_of(as_recipe(CHECKERBOARD)), new=1)) is None
    assert (
        reproduce_command({"experiment": "a b", "seed": 2}, tmp_path)
        == "vages reproduce 'a b' --seed 2 --out NEW_FOLDER"
    )


# script and style of the page


def test_the_script_is_small_and_makes_no_html_of_data():
    script = OWN["script.js"]
    assert len(script.splitlines()) < 400
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "eval",
        "Function(",
        "fetch",
        "XMLHttp",
        "import(",
        "http",
    ):
        assert word not in script
    assert "</" not in script
    for word in ("http", "@import", "</", "url("):
        assert word not in OWN["style.css"]


def test_colors_can_be_read():
    schemes = re.split(r"@media", OWN["style.css"])
    blocks = [OWN["style.css"].split("@media")[0]] + [
        part for part in schemes if part.startswith((" (prefers-color-scheme: dark) {\n  :root", " print"))
    ]
    assert len(blocks) == 3
    for block in blocks:
        color = dict(re.findall(r"--([\w-]+): (#\w+)", block))
        pairs = [(text, ground) for text in ("ink", "soft", "accent") for ground in ("paper", "card", "plain-ground")]
        pairs += [(f"c{i}", "paper") for i in range(7)] + [
            ("good", "good-ground"),
            ("bad", "bad-ground"),
            ("ink", "bad-ground"),
        ]
        for text, ground in pairs:
            assert contrast(color[text], color[ground]) >= 4.5, (text, ground)


def contrast(one, other):
    """The contrast ratio defined by WCAG."""

    def luminance(code):
        code = code[1:] if len(code) == 7 else "".join(2 * x for x in code[1:])
        parts = np.array([int(code[i : i + 2], 16) for i in (0, 2, 4)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


# watching


def reloads(page):
    return [x.attrs["content"] for x in page.all("meta", **{"http-equiv": "refresh"})]


def test_watching_writes_the_page_again_until_the_run_ends(tmp_path, monkeypatch):
    """The page of a training run reloads by itself until the run has ended."""
    run, pages, looks = tmp_path / "run", [], []
    folder = RunFolder(run, with_settings(config_of(as_recipe(CHECKERBOARD)), steps=300, seeds=1))
    logged = metric_rows(3, 1)

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) % 2:  # nothing new at every other check
            return
        if logged:
            folder.log(logged.pop(0))
        else:
            folder.tell("finished", step=300)
            folder.save("result", {"steps": 300, "interrupted": False, "seconds": 1.0})
            folder.close()

    monkeypatch.setattr(report_watch.time, "sleep", sleep)
    told = []
    watch_report(run, lambda seen: (told.append(seen), pages.append(Page(seen.path.read_text()))))
    assert [seen.step for seen in told] == [None, 100, 200, 300, 300]
    assert [seen.ended for seen in told] == [False] * 4 + [True]
    assert len(looks) == 8
    assert min(looks) >= 5
    assert told[0].line == f"{run / 'report.html'} written"
    assert told[2].line == f"step 200 of 300: {run / 'report.html'} written"
    assert told[-1].line == f"step 300 of 300: {run / 'report.html'} written; the run has ended: finished"
    assert [reloads(page) for page in pages] == [["10"]] * 4 + [[]]
    assert "training" in pages[1].all("span", **{"class": "pill plain"})[0].text
    assert (run / "report.html").read_text() == build_report(run)
    for page in pages:
        check(page)


def test_watching_that_is_stopped_leaves_a_page_that_stays(tmp_path, monkeypatch):
    run = grbm_run(tmp_path / "run")
    folder = RunFolder.reopen(run)
    folder.begin()

    def stop(seconds):
        assert reloads(Page((run / "report.html").read_text()))
        raise KeyboardInterrupt

    monkeypatch.setattr(report_watch.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        report(run, watch=True)
    folder.close()
    assert (run / "report.html").read_text() == build_report(run)


def test_watching_what_has_ended_writes_once(tmp_path, capsys):
    for made in (grbm_run(tmp_path / "run"), experiment(tmp_path / "results")):
        assert report(made, watch=True) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.endswith("written; the run has ended: finished")
        assert reloads(Page((made / "report.html").read_text())) == []
        assert report(made, watch=True, json=True) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["ended"]
        assert found["bytes"] == (made / "report.html").stat().st_size
