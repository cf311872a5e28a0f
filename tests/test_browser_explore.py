"""`vages explore` in a real browser.

VAGES_BROWSER names a folder in which `npm install playwright-core axe-core` was run. VAGES_CHROMIUM names the browser
if it is not /usr/bin/chromium. VAGES_SCREENSHOTS names a folder for pictures of the page.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vages.app.recipes import as_recipe
from vages.app.recipes.finding import find_recipe
from vages.app.runs import run_recipe
from vages.app.runs.config import recipe_of, reopened
from vages.app.settings import DEEP_PRESETS, IMAGE_PRESETS, POINT_PRESETS

HERE = Path(__file__).parent / "browser_explore"
MODULES = Path(os.environ.get("VAGES_BROWSER", "nowhere"))
CHROMIUM = os.environ.get("VAGES_CHROMIUM", "/usr/bin/chromium")
MISSING = [
    what
    for what, there in (
        ("the extra vages[explore]", find_spec("nicegui") is not None),
        ("node", shutil.which("node") is not None),
        (CHROMIUM, Path(CHROMIUM).exists()),
        ("VAGES_BROWSER, a folder with playwright-core", (MODULES / "node_modules" / "playwright-core").is_dir()),
        ("VAGES_BROWSER, a folder with axe-core", (MODULES / "node_modules" / "axe-core").is_dir()),
    )
    if not there
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"a browser test needs {', '.join(MISSING)}")

SMALL = replace(
    DEEP_PRESETS["digits-paper"],
    width=32,
    depth=1,
    latents=3,
    head_width=32,
    steps=300,
    batch=20,
    corrector_steps=0,
    posterior_steps=1,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "digits & <digits>"
    return trained(SMALL, path)


def trained(recipe, path):
    """A run whose own samples were drawn in a few steps. The chains of its page have the recipe's length."""
    run_recipe(as_recipe(replace(recipe, sampling=0.01)), path)
    with closing(reopened(as_recipe(recipe), path)) as folder:
        folder.begin()  # writes the settings
    assert recipe_of(path).settings == recipe
    return path


@contextmanager
def explored(run, folder, *words):
    """The command and the address that it prints. If it still runs at the end, it is stopped by Ctrl-C."""
    command = [sys.executable, "-c", "from vages.app.cli import main; main()", "explore", str(run), "--no-browser"]
    command += map(str, words)
    with (folder / "stderr").open("w") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder)
    try:
        assert server.stdout is not None
        found = re.match(r"(http://127\.0\.0\.1:\d+/[\w-]{22}/) ", line := server.stdout.readline())
        assert found, line + (folder / "stderr").read_text()
        yield server, found[1]
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


@contextmanager
def node(script, *args):
    command = ["node", str(HERE / script), *map(str, args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended_well(server, folder):
    """The exit status is that of Ctrl-C, at most one line is printed, and nothing is written."""
    assert server.returncode == 130
    assert (folder / "stderr").read_text() in ("", "vages: stopped by Ctrl-C\n")
    assert [path.name for path in folder.iterdir()] == ["stderr"]


def test_playing(run, tmp_path):
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (40, 60, 3), np.uint8)).save(tmp_path / "picture.png")
    (tmp_path / "large.png").write_bytes((tmp_path / "picture.png").read_bytes() + bytes(5_000_001))
    (tmp_path / "text.png").write_text("no picture")
    files = [tmp_path / name for name in ("picture.png", "large.png", "text.png")]
    (work := tmp_path / "work").mkdir()
    with explored(run, work) as (server, address):
        with node("play.mjs", address, MODULES, *files, os.environ.get("VAGES_SCREENSHOTS", "")) as player:
            assert player.stdout is not None
            line = player.stdout.readline()
            assert line == "playing\n", line + player.stdout.read()
            server.send_signal(signal.SIGINT)  # while a chain runs
            assert server.wait(timeout=10) == 130
            assert player.wait(timeout=60) == 0, player.stdout.read()
    ended_well(server, work)


def outlined(address):
    """The kinds of elements that are outlined when they have the focus."""
    with node("focus.mjs", address, MODULES, os.environ.get("VAGES_SCREENSHOTS", "")) as player:
        out, _ = player.communicate(timeout=300)
        assert player.returncode == 0, out
    return set(out.strip().split(","))


def test_focus_is_visible(run, tmp_path):
    with explored(run, tmp_path) as (_, address):
        kinds = {"thumbnail", "q-btn", "q-tab", "q-slider", "q-select", "q-radio"}
        assert outlined(address) == kinds


def test_taking_turns(tmp_path):
    slow = trained(replace(SMALL, width=2048, depth=3, steps=4, sampling=10.0), tmp_path / "slow")
    (work := tmp_path / "work").mkdir()
    with explored(slow, work) as (server, address):
        with node("turns.mjs", address, MODULES) as visitors:
            out, _ = visitors.communicate(timeout=120)
            assert visitors.returncode == 0, out
    ended_well(server, work)


def test_rows(tmp_path):
    """A run of an own recipe whose examples are points in the plane."""
    recipe = Path(__file__).parent.parent / "examples" / "own_curve.py"
    run_recipe(find_recipe(str(recipe)), tmp_path / "run")
    (work := tmp_path / "work").mkdir()
    with explored(tmp_path / "run", work, "--recipe", recipe) as (server, address):
        with node("rows.mjs", address, MODULES, os.environ.get("VAGES_SCREENSHOTS", "")) as player:
            out, _ = player.communicate(timeout=400)
            assert player.returncode == 0, out
        assert outlined(address) == {"q-btn", "q-tab", "q-slider", "q-checkbox"}
    ended_well(server, work)


@pytest.mark.parametrize(
    "preset",
    [
        replace(IMAGE_PRESETS["digits"], width=32, depth=1, latents=3, steps=100),
        replace(POINT_PRESETS["board"], width=32, depth=1, latents=3, steps=200),
    ],
    ids=["images", "points"],
)
def test_noise_conditional_runs(preset, tmp_path):
    run_recipe(as_recipe(preset), tmp_path / "run")
    (work := tmp_path / "work").mkdir()
    with explored(tmp_path / "run", work) as (server, address):
        args = address, MODULES, os.environ.get("VAGES_SCREENSHOTS", ""), type(preset).__name__
        with node("flows.mjs", *args) as player:
            out, _ = player.communicate(timeout=300)
            assert player.returncode == 0, out
    ended_well(server, work)
