"""Pages of `vages report` in a real browser, offline: curves and walks by mouse and keyboard, phone, print, axe.

    npm install --prefix FOLDER playwright-core axe-core
    VAGES_BROWSER=FOLDER pytest -n0 tests/test_browser.py

The default is Debian's chromium; VAGES_CHROMIUM=PATH selects another. VAGES_SCREENSHOTS=FOLDER keeps pictures of
the pages.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fake_runs import HOSTILE, deep_run, experiment, grbm_run, write_rows
from vages.app.runs.reports import write_report

SCRIPT = Path(__file__).parent / "browser" / "check_report.js"
BROWSER = os.environ.get("VAGES_CHROMIUM", "/usr/bin/chromium")
MODULES = Path(os.environ.get("VAGES_BROWSER", "")) / "node_modules"


def missing():
    if "VAGES_BROWSER" not in os.environ:
        return "VAGES_BROWSER is not set: the folder with node_modules/playwright-core and axe-core"
    if shutil.which("node") is None:
        return "node is not installed"
    if not os.access(BROWSER, os.X_OK):
        return f"{BROWSER} is not there: install chromium or set VAGES_CHROMIUM"
    absent = [name for name in ("playwright-core", "axe-core") if not (MODULES / name).is_dir()]
    return f"{MODULES} holds no {absent[0]}: npm install --prefix FOLDER playwright-core axe-core" if absent else None


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def seen(folder):
    page = write_report(folder)
    shots = [os.environ["VAGES_SCREENSHOTS"] + f"/{folder.name}"] if "VAGES_SCREENSHOTS" in os.environ else []
    for shot in shots:
        Path(shot).mkdir(parents=True, exist_ok=True)
    told = subprocess.run(
        ["node", str(SCRIPT), str(page), *shots],
        env={**os.environ, "NODE_PATH": str(MODULES), "VAGES_CHROMIUM": BROWSER},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def check_page(found):
    """Requirements of every page."""
    assert found["console"] == found["requests"] == found["dialogs"] == []
    assert not found["injected"]
    assert found["anchor"]
    assert all(gap >= 16 for gap in found["gaps"])
    for scheme in ("light", "dark", "phone"):
        assert not [rule for rule in found[scheme]["violations"] if rule["impact"] in ("serious", "critical")]
        assert found[scheme]["score"] >= 95, found[scheme]
    assert max(found["phone"]["overflow"]) <= 360
    assert max(found["print"]["overflow"]) <= 700
    assert found["print"]["controls"] == 0
    assert found["print"]["pdf"] > 10_000
    assert found["plain"]["buttons"] == 0  # without the script there are no dead buttons


def check_curve(found):
    curve = found["curve"]
    assert "iteration" in curve["hovered"]
    assert curve["gone"]
    assert curve["first"] != curve["second"] != curve["last"]
    assert curve["zoomed"] != curve["whole"] == curve["back"] == curve["after"]
    assert curve["panned"] != curve["zoomed"]
    left, _, width, _ = map(float, curve["dragged"].split())
    assert abs(left - 200) < 15
    assert abs(width - 200) < 15
    assert found["plain"]["curves"] >= 2


def test_deep_run(tmp_path):
    found = seen(deep_run(tmp_path / "deep"))
    check_page(found)
    check_curve(found)
    assert len(found["gaps"]) >= 2  # between the table of an evaluation and its two pictures
    walk = found["walk"]
    assert walk["label"] == "h = 1 m, step 2,700"
    assert walk["moved"]
    assert walk["moved_label"] == "h = −1 m, step 2,700"
    assert walk["pressed"] == "true"
    assert walk["frames"] >= 3
    assert walk["ended"] == ["false", "5", "5"]
    assert walk["clicked"] == "h = 1 m, step 450"


def test_many_seeds_and_thousands_of_rows(tmp_path):
    found = seen(grbm_run(tmp_path / "grbm", rows=5000, seeds=12))
    check_page(found)
    check_curve(found)
    assert "12 seeds" in found["curve"]["hovered"]


def test_hostile_run(tmp_path):
    folder = grbm_run(tmp_path / "hostile", data=HOSTILE, method=HOSTILE)
    rows = [{"step": i, HOSTILE: i, "loss": None if i % 3 else 1e300 * i} for i in range(9)]
    write_rows(folder, "metrics.jsonl", rows)
    write_rows(folder, "events.jsonl", [{"event": HOSTILE, "time": HOSTILE, HOSTILE: HOSTILE}])
    check_page(seen(folder))


def test_experiment(tmp_path):
    found = seen(experiment(tmp_path / "fig1"))
    check_page(found)
    assert found["curve"]["last"] == "iteration 30; a 2; b 3"
