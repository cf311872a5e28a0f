"""pyproject.toml's dependencies at the oldest versions that it admits, as constraints for pip."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
print("\n".join(one.replace(">=", "==") for one in project["dependencies"]))
