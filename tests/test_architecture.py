"""docs/architecture.md is true to the code, and the public surface is what its list says."""

import ast
import re
from pathlib import Path

import vages

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "vages"


def rooms():
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```rooms\n(.*?)```", text, re.S)
    assert block
    return [line.split() for line in block[1].splitlines()]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("vages."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("vages."))


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_no_arrow_runs_up():
    level = {room: height for height, line in enumerate(reversed(rooms())) for room in line}
    files = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    assert {room_of(path) for path in files} == set(level)
    arrows = {(room_of(path), target) for path in files for target in imports(path)}
    wrong = [(a, b) for a, b in arrows if a != b and level[a] <= level[b]]
    assert not wrong


def test_pictures_know_nothing_of_the_page():
    for path in (PACKAGE / "report").glob("*.py"):
        assert "vages.report.page" not in path.read_text(), path


def test_every_room_is_described():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in (room for line in rooms() for room in line):
        assert re.search(rf"^\| `{room}(/|\.py)` \|", text, re.M), room


def test_every_public_name_is_there():
    for name in dir(vages):
        assert getattr(vages, name) is not None
