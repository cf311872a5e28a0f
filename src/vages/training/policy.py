"""When checkpoints are written and which are kept, and the record of this in a run's checkpoints.json.

    {"format": 1, "policies": [{"from": 0, "every": 1000, "seconds": 60.0, "keep_last": 2, "keep_every": 2000}]}

A resume with another policy appends it to the list, with the first step it applies to. So a checkpoint is judged by the
policy it was written under, and a later policy does not remove the milestones of an earlier one.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vages.checks import check_count
from vages.files.json_files import parse_json
from vages.storage.directory import Directory
from vages.storage.errors import BadFile

FORMAT = 1
FILE = "checkpoints.json"
_LARGEST = 2**24  # bytes


@dataclass(frozen=True)
class Checkpoints:
    """When checkpoints are written and which are kept.

    They are written every `every` iterations or, if that is None, every `seconds`, but less often if they would take
    more than 1 % of the time. The `keep_last` newest are kept, and those of every `keep_every`-th iteration. A run is
    always checkpointed at its end and when it is interrupted.
    """

    every: int | None = None
    seconds: float = 60.0
    keep_last: int = 2
    keep_every: int | None = None

    def __post_init__(self):
        for name in ("every", "keep_last", "keep_every"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, 1, "give more")
        if not self.seconds >= 0:
            raise ValueError(f"seconds: expected 0 or more, got {self.seconds}")


@dataclass(frozen=True)
class PolicyHistory:
    """The policies of a run, oldest first, each with the first step it applies to."""

    policies: tuple[tuple[int, Checkpoints], ...] = ()

    @property
    def latest(self) -> Checkpoints | None:
        """The policy of the run; None if none was recorded."""
        return self.policies[-1][1] if self.policies else None

    def then(self, first: int, policy: Checkpoints) -> "PolicyHistory":
        """Return the history in which `policy` applies from step `first` on."""
        return PolicyHistory((*self.policies, (first, policy)))

    def keeps(self, step: int) -> bool:
        """Whether a checkpoint is kept even if it is not among the newest.

        Those of a time without a record are kept: it is not known which of them are milestones.
        """
        policy = next((policy for first, policy in reversed(self.policies) if first <= step), None)
        return policy is None or (policy.keep_every is not None and step % policy.keep_every == 0)

    def write(self, directory: Directory) -> None:
        """Write the record to a run's folder."""
        policies = [{"from": first, **_plain(policy)} for first, policy in self.policies]
        directory.write_json(FILE, {"format": FORMAT, "policies": policies}, allow_nan=False)


def read_policies(folder: Directory | Path) -> PolicyHistory:
    """Return the record in a run's folder. It is empty for a run without one, which an older version has written."""
    directory = Directory.of(folder)
    if not directory.check_file(FILE):
        return PolicyHistory()
    name = str(directory.path / FILE)
    found = parse_json(directory.read_bytes(FILE, _LARGEST), name)
    if found.get("format") != FORMAT:
        raise BadFile(f"{name}: expected format {FORMAT}, got {found.get('format')!r:.20}; use the newest vages")
    try:
        return PolicyHistory(tuple(_parsed(**one) for one in found["policies"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{name}: expected the policies of checkpoints, got others; was it edited?") from error


def _plain(policy: Checkpoints) -> dict[str, Any]:
    """Return values for JSON, with None for infinite seconds."""
    numbers = {
        name: None if value is None else int(value) for name, value in asdict(policy).items() if name != "seconds"
    }
    return {**numbers, "seconds": float(policy.seconds) if math.isfinite(policy.seconds) else None}


def _parsed(**values: Any) -> tuple[int, Checkpoints]:
    first, seconds = values.pop("from"), values.pop("seconds")
    check_count("from", first, 0, "undo the edit")
    return first, Checkpoints(**values, seconds=math.inf if seconds is None else seconds)
