"""The code in the guides runs, their commands exist, and the site built from them loads nothing from a network."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from command_options import options_of
from vages.app import cli

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_commands_exist_and_have_these_options(page):
    commands = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("vages ")]
    commands += re.findall(r"`(vages [a-z][^`]*)`", page.read_text().replace("\n", " "))
    for command in commands:
        name, *words = command.split("#")[0].split()[1:]
        options = {word[2:].replace("-", "_") for word in words if re.fullmatch("--[a-z-]+", word)}
        assert name in cli.__all__, command
        known = {option.rstrip("_") for option in options_of(name)} | {"help", "debug"}
        assert options <= known, f"{command}: {options - known}"


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {page.name for page in PAGES}


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="the site's tools are the extra vages[docs]")
def test_the_site_builds_and_loads_nothing_from_a_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-2000:]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)  # plus the page for errors 404
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*?\ssrc=[\"']?([^\"'\s>]+)", page.read_text())
        loaded += re.findall(r"<link(?![^>]*canonical)[^>]*?\shref=[\"']?([^\"'\s>]+)", page.read_text())
        assert loaded
        assert not [address for address in loaded if re.match(r"(?:https?:)?//", address)], page.name
