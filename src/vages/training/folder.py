"""A run's folder, which describes itself: config, environment, metrics, figures."""

import json
from pathlib import Path
from typing import Any

from vages.environment import environment


class RunFolder:
    """`config.json`, `environment.json`, one line of `metrics.jsonl` a chunk, and whatever is saved beside them."""

    def __init__(self, path: Path, config: dict[str, Any]):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"out: expected a new or empty folder, got {path}, which holds something; choose another")
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.save("config", config)
        self.save("environment", environment())

    def log(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(record) + "\n")

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Write `name`.json."""
        (self.path / f"{name}.json").write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def numbered_folder(parent: Path, name: str) -> Path:
    """`parent/name-1`, or the first number that is free."""
    number = 1
    while (path := parent / f"{name}-{number}").exists():
        number += 1
    return path
