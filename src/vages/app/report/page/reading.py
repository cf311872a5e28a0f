"""What a run left on the disk, read so that a page can be made of it whatever it holds: damage is told, not raised.

Links, pipes and the like are left out, and told of as well.
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
_ARCHIVE = 2**20  # bytes of an archive of arrays beside them


@dataclass
class Reader:
    """Reads the files of a folder; `problems` says what could not be read."""

    directory: Directory
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.directory.path

    def object(self, name: str) -> dict[str, Any]:
        """A JSON object, or an empty one where there is none; NaN, which strict JSON has not, is let through."""
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
        """The objects of a log, a line each; lines that are none are left out, the last of them without a word."""
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
            elif row is not None and i < len(lines) - 1:  # the last may have been torn by the end of the process
                bad += 1
        if bad:
            self.problems.append(f"{name}: {bad} {'line' if bad == 1 else 'lines'} could not be read")
        return rows

    def picture(self, name: str) -> Picture | None:
        """An image, made smaller where it is large."""
        try:
            return Picture.of(decode_image(self.directory.read_bytes(name, _IMAGE), name))
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return None

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a .npz file, or none."""
        try:
            if not self.directory.has_file(name):
                return {}
            return parse_npz(self.directory.read_bytes(name, _ARRAYS + _ARCHIVE), str(self.folder / name), _ARRAYS)
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return {}

    def names(self, suffix: str) -> list[str]:
        """Files of this kind, in order."""
        names = [name for name in self.directory.names() if Path(name).suffix == suffix]
        return [name for name in names if self.directory.kind(name) != FOLDER]

    def inner(self, name: str) -> "Reader | None":
        """A folder below this one, where it holds a result."""
        try:
            inner = Reader(self.directory / name)
            return inner if self.directory.check_folder(name) and inner.directory.has_file("result.json") else None
        except (ValueError, OSError) as error:
            self._tell(name, error)
            return None

    def _tell(self, name: str, error: BaseException) -> None:
        reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        self.problems.append(reason if name in reason else f"{name}: {reason}")
