"""The folder of datasets."""

import os
from pathlib import Path


def data_folder() -> Path:
    """Return the folder with one subfolder per dataset: $VAGES_DATA, or `data` in the current directory."""
    return Path(os.environ.get("VAGES_DATA") or "data")
