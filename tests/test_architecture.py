"""docs/architecture.md agrees with the code, and the public names are those listed."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vages

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "vages"
APP = PACKAGE / "app"
FILES = [path for path in PACKAGE.rglob("*.py") if path not in (PACKAGE / "__init__.py", APP / "__init__.py")]


def rooms():
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```rooms\n(.*?)```", text, re.S)
    assert block
    return [line.split() for line in block[1].splitlines()]


def imports(path):
    """Every module that a file imports, at the top or in functions; a.b for `from a import b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
            yield ast.unparse(node.args[0]).strip("f'\"")
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(parts):
    return ".".join(parts[: 2 if parts[0] == "app" else 1])


def room_of_file(path):
    return room_of(path.relative_to(PACKAGE).with_suffix("").parts)


def test_no_import_runs_up():
    level = {room: height for height, line in enumerate(reversed(rooms())) for room in line}
    assert {room_of_file(path) for path in FILES} == set(level)
    arrows = {
        (room_of_file(path), room_of(name.split(".")[1:]))
        for path in FILES
        for name in imports(path)
        if name.startswith("vages.") and name != "vages.__version__"
    }
    wrong = [(a, b) for a, b in arrows if a != b and level[a] <= level[b]]
    assert not wrong


LIBRARY = [path for path in FILES if not path.is_relative_to(APP)]
FROM_THE_APP = {"ProgressBar", "Recipe", "Training", "Examples", "train", "load_run"}  # public names
OF_THE_APP = ("matplotlib", "rich", "tyro", "nicegui", "tensorboardX")


def test_the_library_imports_nothing_of_the_application():
    for path in LIBRARY:
        names = set(imports(path))
        assert not [name for name in names if name == "vages.app" or name.startswith("vages.app.")], path
        assert not [name for name in names if name.partition(".")[0] in OF_THE_APP], path
    assert not [name for name in imports(PACKAGE / "__init__.py") if name.startswith("vages")]


def test_the_library_works_without_the_libraries_of_the_application():
    """All modules of the library are imported, and all public names are used."""
    stub = (PACKAGE / "__init__.pyi").read_text()
    assert set(re.findall(r"^from \.app\S* import \w+ as (\w+)", stub, re.M)) == FROM_THE_APP
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in LIBRARY]
    code = f"""
import sys, vages
assert "jax" not in sys.modules
for name in set(vages.__all__) - {FROM_THE_APP}:
    getattr(vages, name)
for name in {[name.removesuffix(".__init__") for name in modules]}:
    __import__(name)
print(*(name for name in sys.modules if name.partition(".")[0] in {OF_THE_APP} or name.startswith("vages.app")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.stdout, found.stderr, found.returncode) == ("\n", "", 0)


def test_there_are_nine_floors_at_most():
    assert len(rooms()) <= 9


def test_pictures_know_nothing_of_the_page():
    for path in (APP / "report").glob("*.py"):
        assert "vages.app.report.page" not in path.read_text(), path


def test_every_room_is_described():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in (room for line in rooms() for room in line):
        assert re.search(rf"^\| `{room}(/|\.py)` \|", text, re.M), room


def test_every_public_name_is_there():
    for name in dir(vages):
        assert getattr(vages, name) is not None


@pytest.mark.parametrize("name", ["recipes", "runs", "report", "explore", "experiments", "bench", "cli"])
def test_a_room_that_moved_names_its_new_place(name):
    with pytest.raises(AttributeError, match=rf"^vages\.{name} is now vages\.app\.{name}; "):
        getattr(vages, name)


@pytest.mark.parametrize(("name", "place"), [("learners", "training.learner"), ("optimisers", "optimizers")])
def test_a_module_that_moved_names_its_new_place(name, place):
    with pytest.raises(AttributeError, match=rf"^vages\.{name} is now vages\.{place}; "):
        getattr(vages, name)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("vages", "gradient_estimate"),
        ("NoPosterior", "ExactPosterior"),
        ("NoLatents", "any source"),
        ("binary_states", "Binary"),
        ("gibbs_noise", "gone"),
        ("recipes", "vages.app.recipes"),
    ],
)
def test_a_name_that_is_gone_says_its_new_one(name, new):
    """On import and on attribute access; `hasattr` is False."""
    with pytest.raises(ImportError, match=rf"^vages\.{name} is now {new}"):
        exec(f"from vages import {name}")
    with pytest.raises(AttributeError, match=rf"^vages\.{name} is now {new}"):
        getattr(vages, name)
    assert not hasattr(vages, name)
    assert getattr(vages, name, None) is None
