"""Print pip constraints with the oldest dependencies that pyproject.toml allows."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
print("\n".join(one.replace(">=", "==") for one in project["dependencies"]))
