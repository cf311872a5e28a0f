"""FID and KID of a run's samples, stored in its folder, since sampling takes hours."""

from pathlib import Path
from typing import Any

from vages.app.recipes.samples import Protocol
from vages.app.runs.image_quality import protocol_of, samples_of
from vages.app.runs.kept import new_folder
from vages.app.runs.loaded import Run
from vages.files import BadFile, parse_json
from vages.storage.directory import FOLDER, Directory
from vages.terminal import printable

_NAME = "quality"


def keep_quality(run: Run, quality: dict[str, Any]) -> Path:
    """Write `Quality.as_json()` to the first free RUN/quality-NUMBER."""
    with new_folder(run, _NAME, None) as folder:
        folder.write_json("result.json", quality)
        return folder.path


def find_quality(run: Run, *, count: int, protocol: Protocol, seed: int) -> dict[str, Any] | None:
    """Return the stored quality of `count` samples of this checkpoint against the run's training images, or None.

    Protocol and seed must match, and the samples must be drawn by the recipe's own sampler.
    """
    wanted = {"checkpoint": run.step, "weights": run.weights, "protocol": protocol_of(run, protocol)}
    wanted |= {"seed": seed, "of": count}
    wanted |= {"sampler": samples_of(run, count, protocol, None, seed, "replicate").sampler}
    with Directory(run.path) as directory:
        for name in directory.names():
            if not name.startswith(f"{_NAME}-") or directory.kind(name) != FOLDER:
                continue
            try:
                content = (directory / name).read_bytes("result.json", 2**24)
                found = parse_json(content, str(run.path / name / "result.json"))
            except (BadFile, FileNotFoundError):
                continue
            sampling, reference = found.get("sampling"), found.get("reference")
            if not (isinstance(sampling, dict) and isinstance(reference, dict)):
                continue
            if sampling.items() >= wanted.items() and reference.get("name") == printable(f"{run.data_name}:train"):
                return found
    return None
