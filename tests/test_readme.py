"""The README's code runs and gives the stated results, its numbers are those of the results, and its links exist."""

import re
from pathlib import Path

import numpy as np
import pytest

from vages.app import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
(CODE,) = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.long_runs
def test_the_code_ends_where_it_says():
    names = {}
    exec(compile(CODE, "README.md", "exec"), names)
    learnt = names["fitted"].state.model.params
    np.testing.assert_allclose(learnt["bend"], 0.7, rtol=0, atol=0.06)
    np.testing.assert_allclose(learnt["width"], np.hypot(0.2, 0.1), rtol=0, atol=0.03)
    steps, loss = names["fitted"].curve("loss")
    assert steps[-1] == 3000
    assert loss[-1] < loss[0]


def test_the_code_is_ten_lines_after_the_imports():
    lines = [line for line in CODE.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 10


def test_the_first_two_commands_are_to_try_and_to_test():
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.S)
    assert commands[:2] == ["pip install . && vages train", "pip install -e '.[test]' && pytest"]
    for line in "\n".join(commands[2:]).splitlines():
        name = line.split()[1]
        assert line.startswith("vages ")
        assert callable(getattr(cli, name)), name


def test_commands_of_results_are_those_of_the_results_page():
    table = README.split("## Results")[1].split("What does not hold")[0]
    page = (ROOT / "docs" / "results.md").read_text()
    commands = re.findall(r"`(vages [^`]*)`", table)
    assert len(commands) == 21
    for command in commands:
        assert all(word in page for word in command.split()), command


def test_links_and_pictures_are_there():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).is_file(), f"{page.name}: {target}"
