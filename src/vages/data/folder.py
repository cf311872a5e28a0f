"""Where datasets lie on this computer."""

import os
from pathlib import Path


def data_folder() -> Path:
    """The folder that holds one folder a dataset: $VAGES_DATA, or `data` in the current directory."""
    return Path(os.environ.get("VAGES_DATA") or "data")
