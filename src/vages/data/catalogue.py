"""The available datasets, and which of them are on this computer."""

from pathlib import Path
from typing import Literal, NamedTuple

from vages.data.celeba import celeba_bounds, celeba_folder
from vages.data.checksums import FILES, check_known
from vages.data.folder import data_folder
from vages.data.toy import TOYS
from vages.files import BadFile, is_image_name

State = Literal["built in", "present", "missing", "damaged"]


class Dataset(NamedTuple):
    """A dataset: its description, location and state. `detail` says what is wrong if it cannot be used."""

    name: str
    description: str
    shape: tuple[int, ...]
    counts: tuple[int, int, int] | None
    """Numbers of examples for training, validation and test, if known."""
    where: Path | None
    state: State
    detail: str


_DRAWN = (60_000, 10_000, 10_000)
_ON_DISK = {
    "freyface": ("one man's face, frames of a film, gray", (1, 28, 20), (1400, 300, 265)),
    "mnist": ("handwritten digits, gray, padded", (1, 32, 32), (50_000, 10_000, 10_000)),
    "cifar10": ("photographs of ten kinds of things", (3, 32, 32), (50_000, 0, 10_000)),
}


def datasets() -> list[Dataset]:
    """List all datasets and the state of those on disk. Checksums are verified, which takes a second."""
    toys = [
        Dataset(name, f"{name.replace('_', ' ')}, a density on the plane", (2,), _DRAWN, None, "built in", "")
        for name in TOYS
    ]
    digits = Dataset("digits", "handwritten digits, gray", (1, 8, 8), (1437, 180, 180), None, "built in", "")
    on_disk = [
        Dataset(name, *facts, data_folder() / name, *_state(name, data_folder() / name))
        for name, facts in _ON_DISK.items()
    ]
    return [*toys, digits, *on_disk, _celeba()]


def _state(name: str, folder: Path) -> tuple[State, str]:
    missing, damaged = [], []
    for file, known in FILES[name].items():
        try:
            check_known(folder / file, known)
        except FileNotFoundError:
            missing.append(file)
        except BadFile as error:
            damaged.append(str(error))
    if damaged:
        return "damaged", damaged[0]
    if missing:
        return "missing", f"expected {', '.join(missing)} in {folder}"
    return "present", ""


def _celeba() -> Dataset:
    folder = celeba_folder()
    row = Dataset("celeba", "faces of celebrities", (3, 64, 64), None, folder, "present", "")
    if folder is None:
        place = data_folder() / "celeba"
        return row._replace(
            where=place, state="missing", detail=f"expected img_align_celeba with its images in {place}"
        )
    count = sum(is_image_name(path.name) for path in folder.iterdir())
    if not count:
        return row._replace(state="damaged", detail=f"{folder}: expected images, got none; unpack them again")
    validation, test = celeba_bounds(count)
    return row._replace(counts=(validation, test - validation, count - test))
