"""CIFAR10: color photographs of ten classes, 32 × 32 pixels."""

from pathlib import Path

import numpy as np

from vages.data.folder import data_folder
from vages.data.images import Images, Labels, scaled
from vages.data.splits import Splits
from vages.files import BadFile, parse_cifar10, read_bytes

_ROWS = 10_000
_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_LIMIT = 2**25


def cifar10_folder() -> Path:
    """Return the folder of the six binary files."""
    return data_folder() / "cifar10" / "cifar-10-batches-bin"


def load_cifar10(folder: Path | None = None) -> Images:
    """Read `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`: images of shape (3, 32, 32).

    As in the paper, 50,000 are for training, none for validation and 10,000 for test.
    """
    folder = cifar10_folder() if folder is None else folder
    train, labels = np.empty((5 * _ROWS, 3, 32, 32), np.float32), np.empty(5 * _ROWS, np.int32)
    for i, name in enumerate(_BATCHES):
        rows = slice(i * _ROWS, (i + 1) * _ROWS)
        pixels, labels[rows] = _batch(folder / name)
        train[rows] = scaled(pixels)
    pixels, test_labels = _batch(folder / "test_batch.bin")
    splits = Splits(train, train[:0], scaled(pixels))
    return Images(splits, Labels(labels, labels[:0], test_labels.astype(np.int32)))


def _batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(
            f"CIFAR10: expected the file {path}, got none; put the binary version there, run "
            "'vages data --get cifar10' or set VAGES_DATA"
        )
    images, labels = parse_cifar10(read_bytes(path, _LIMIT), str(path))
    if len(images) != _ROWS:
        raise BadFile(f"{path}: expected {_ROWS} images, got {len(images)}; download it again")
    return images, labels
