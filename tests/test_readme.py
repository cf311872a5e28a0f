"""The README's code runs, and its commands are the ones that exist."""

import re
from pathlib import Path

import numpy as np

from vages import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_code_runs_and_learns():
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    steps, loss = names["fitted"].curve("loss")
    assert steps[-1] == 2000
    assert loss[-1] < loss[0]
    assert np.isfinite(names["fitted"].state.model.params["w"]).all()


def test_the_first_two_commands_are_to_try_and_to_test():
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.S)
    assert commands[:2] == ["pip install . && vages train", "pip install -e '.[test]' && pytest"]
    for line in "\n".join(commands[2:]).splitlines():
        name = line.split()[1]
        assert line.startswith("vages ")
        assert callable(getattr(cli, name)), name


def test_links_and_pictures_are_there():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
