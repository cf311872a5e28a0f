"""The README's code runs, and its commands are the ones that exist."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_code_runs():
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["gradient"].params["w"].shape == (2, 4)
    assert float(names["loss"]) > 0


def test_there_are_two_commands():
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.S)
    assert commands == ["pip install . && vages reproduce fig1", "pip install -e '.[test]' && pytest"]
