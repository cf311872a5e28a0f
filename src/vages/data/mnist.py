"""MNIST: handwritten digits, 28 × 28 pixels with two rows and columns of zeros around them."""

from pathlib import Path

import numpy as np

from vages.data.folder import data_folder
from vages.data.images import Images, Labels, scaled
from vages.data.splits import Splits
from vages.files import BadFile, inflate, parse_idx, read_bytes

_PAD = ((0, 0), (0, 0), (2, 2), (2, 2))
_TRAIN, _TEST, _VALIDATION = 60_000, 10_000, 10_000
_LIMIT = 2**26


def mnist_folder() -> Path:
    """Return the folder of the four files."""
    return data_folder() / "mnist"


def load_mnist(folder: Path | None = None) -> Images:
    """Read `{train,t10k}-{images-idx3,labels-idx1}-ubyte`, or their .gz versions: images of shape (1, 32, 32).

    50,000 for training, the last 10,000 of the training file for validation, and 10,000 for test.
    """
    folder = mnist_folder() if folder is None else folder
    pixels, labels = _pair(folder, "train", _TRAIN)
    test, test_labels = _pair(folder, "t10k", _TEST)
    parts = *np.split(pixels, [_TRAIN - _VALIDATION]), test
    classes = *np.split(labels, [_TRAIN - _VALIDATION]), test_labels
    splits = Splits(*(np.pad(scaled(part[:, None]), _PAD) for part in parts))
    return Images(splits, Labels(*(part.astype(np.int32) for part in classes)))


def _pair(folder: Path, name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The images and the labels of one set."""
    images = _array(folder / f"{name}-images-idx3-ubyte", (rows, 28, 28))
    labels = _array(folder / f"{name}-labels-idx1-ubyte", (rows,))
    if labels.max() > 9:
        raise BadFile(f"{folder}: expected labels 0 to 9, got {labels.max()} in {name}; download the files again")
    return images, labels


def _array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    packed = path.with_name(f"{path.name}.gz")
    if not path.is_file() and not packed.is_file():
        raise FileNotFoundError(
            f"MNIST: expected the file {path}, or {packed.name}, got none; put it there, run "
            "'vages data --get mnist' or set VAGES_DATA"
        )
    if path.is_file():
        array = parse_idx(read_bytes(path, _LIMIT), str(path))
    else:
        array = parse_idx(inflate(read_bytes(packed, _LIMIT), str(packed), _LIMIT), str(packed))
    if array.shape != shape or array.dtype != np.uint8:
        raise BadFile(f"{path}: expected uint8{list(shape)}, got {array.dtype}{list(array.shape)}; download it again")
    return array
