"""Reader of a run's files for its page: damaged files are reported as problems rather than raised as errors.

Links, pipes and other special files are skipped and reported as well.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vages.app.report.page.embedded import Picture
from vages.files import parse_npz
from vages.files.images import decode_image
from vages.storage.directory import FOLDER, Directory

_OBJECT, _LOG, _IMAGE, _ARRAYS = 2**25, 2**27, 2**26, 2**28  # bytes at most
_ARCHIVE = 2**20  # bytes of an archive in addition to its arrays


@dataclass
class Reader:
    """Reads the files of a folder; `problems` lists what could not be read."""

    directory: Directory
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Path of the folder."""
        return self.directory.path

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object, or an empty one if there is none; NaN is accepted, unlike in strict JSON."""
        try:
            if not self.directory.has_file(name):
                return {}
            value = json.loads(self.directory.read_bytes(name, _OBJECT))
            if not isinstance(value, dict):
                raise ValueError(f"expected an object, got {type(value).__name__}")
        except (ValueError, OSError, RecursionError) as error:
            self._tell(name, error)
            return {}
        return value

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the objects of a log, one per line; other lines are skipped and reported, except for the last line."""
        try:
            if not self.directory.has_file(name):
                return []
            lines = self.directory.read_bytes(name, _LOG).split(b"\n")
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return []
        rows, bad = [], 0
        for i, line in enumerate(lines):
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError):
                row = 0
            if isinstance(row, dict):
                rows.append(row)
            elif row is not None and i < len(lines) - 1:  # the last may be incomplete if the process was killed
                bad += 1
        if bad:
            self.problems.append(f"{name}: {bad} {'line' if bad == 1 else 'lines'} could not be read")
        return rows

    def picture(self, name: str) -> Picture | None:
        """Return an image, scaled down if it is large, or None."""
        try:
            return Picture.of(decode_image(self.directory.read_bytes(name, _IMAGE), name))
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return None

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a .npz file; empty if there is none."""
        try:
            if not self.directory.has_file(name):
                return {}
            return parse_npz(self.directory.read_bytes(name, _ARRAYS + _ARCHIVE), str(self.folder / name), _ARRAYS)
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return {}

    def names(self, suffix: str) -> list[str]:
        """Return the names of files with this suffix, in order."""
        names = [name for name in self.directory.names() if Path(name).suffix == suffix]
        return [name for name in names if self.directory.kind(name) != FOLDER]

    def inner(self, name: str) -> "Reader | None":
        """Return the reader of a subfolder if it holds a result, else None."""
        try:
            inner = Reader(self.directory / name)
            return inner if self.directory.check_folder(name) and inner.directory.has_file("result.json") else None
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return None

    def _tell(self, name: str, error: BaseException) -> None:
        reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        self.problems.append(reason if name in reason else f"{name}: {reason}")
