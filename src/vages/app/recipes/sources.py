"""Sets of images, opened by name or path and read piece by piece for the FID network."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from vages.app.recipes.examples import Examples
from vages.data import IMAGE_SETS, Images, Splits, load_images
from vages.data.arrays import list_of, read_arrays
from vages.evaluation import Gray, as_pixels
from vages.files import BadFile, image_files, read_image
from vages.files.limits import MAX_MEMBERS

_PIECE = 250
_SAMPLES = {"v", "diverged"}  # arrays in what `vages sample` writes
_CLIPPED = 0.1  # largest mean change of pixels by clipping: more than denoising's overshoot

Pixels = UInt8[np.ndarray, "n 3 height width"]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A set of images: its name, the number of images, and a function that reads images by their indices."""

    name: str
    count: int
    read: Callable[[Int[np.ndarray, "n"]], Pixels]


def pieces(images: ImageSet, rows: Int[np.ndarray, "n"] | None = None) -> Iterator[Pixels]:
    """Yield the images with these indices, or all, a few hundred at a time."""
    rows = np.arange(images.count) if rows is None else rows
    for begin in range(0, len(rows), _PIECE):
        yield images.read(rows[begin : begin + _PIECE])


def random_rows(images: ImageSet, n: int, seed: int) -> Int[np.ndarray, "n"]:
    """Return the indices of n images drawn without replacement."""
    return np.sort(np.random.default_rng(seed).permutation(images.count)[:n])


def is_image_set(text: str) -> bool:
    """Whether `text` is the name of a public dataset, or of a split of one."""
    return text.partition(":")[0] in IMAGE_SETS


def open_images(text: str, gray: Gray = "refuse") -> ImageSet:
    """Open a dataset such as cifar10 or cifar10:test (by default train), a folder of images, or a .npy or .npz file.

    A .npz file holds one array, or the output of `vages sample`. In the latter, chains that diverged are left out, and
    floats slightly outside of [0, 1], which denoising can produce, are clipped.
    """
    path = Path(text)
    if is_image_set(text):
        name, _, part = text.partition(":")
        return split_of(load_images(name, check=False), name, part or "train", gray)
    if path.is_dir():
        return _folder(path, gray)
    if path.suffix.lower() in (".npy", ".npz"):
        return _file(path, gray)
    raise ValueError(
        f"images: expected a set ({', '.join(IMAGE_SETS)}; cifar10:test is a split of one), a folder of images, a .npy "
        f"or .npz file, got {text!r}; check the path"
    )


def split_of(images: Images | Examples, name: str, part: str, gray: Gray = "refuse") -> ImageSet:
    """Return one of the splits of a dataset."""
    if part not in Splits._fields:
        raise ValueError(f"{name}: expected a split, {', '.join(Splits._fields)}, got {part!r}; choose one")
    return _of_array(f"{name}:{part}", getattr(images.splits, part), gray)


def _of_array(name: str, array: np.ndarray, gray: Gray) -> ImageSet:
    return ImageSet(name, len(array), lambda rows: as_pixels(array[rows], name, gray))


def _file(path: Path, gray: Gray) -> ImageSet:
    arrays = read_arrays(path)
    if arrays.keys() >= _SAMPLES:
        diverged = arrays["diverged"]
        if diverged.dtype != bool or diverged.shape != arrays["v"].shape[:1]:
            raise BadFile(
                f"{path}: expected 'diverged' to have one entry per sample, true or false, got others; sample again"
            )
        told = f" without {int(diverged.sum())} diverged chains" if diverged.any() else ""
        return _of_array(f"{path}{told}", _clipped(path, arrays["v"][~diverged]), gray)
    if len(arrays) != 1:
        raise BadFile(f"{path}: expected one array, or samples of vages, got {list_of(arrays)}; save it alone")
    (array,) = arrays.values()
    if array.ndim < 3:
        raise BadFile(f"{path}: expected an array of images, got the shape {list(array.shape)}; reshape it")
    return _of_array(str(path), array, gray)


def _clipped(path: Path, v: np.ndarray) -> np.ndarray:
    """Clip floats to [0, 1]; raise BadFile if they are far outside. Other types are returned unchanged."""
    if v.dtype.kind != "f" or not v.size:
        return v
    clipped = np.clip(v, 0, 1)
    moved = float(np.mean(np.abs(v - clipped), dtype=np.float64))
    if moved > _CLIPPED:
        raise BadFile(
            f"{path}: expected floats from 0 to 1, got {float(v.min()):.4g} to {float(v.max()):.4g}, which clipping "
            f"would move by {moved:.3g} on average; rescale them, or sample from a model that is trained for longer"
        )
    return clipped


def _folder(folder: Path, gray: Gray) -> ImageSet:
    paths = image_files(folder, MAX_MEMBERS)
    first = read_image(paths[0]).shape[1:]

    def one(path: Path) -> np.ndarray:
        image = read_image(path)
        if image.shape[1:] != first:
            sizes = " and ".join(f"{width} × {height}" for height, width in (first, image.shape[1:]))
            raise BadFile(f"{path}: expected all images of one size, got {sizes}; resize them")
        return as_pixels(image[None], str(path), gray)

    def read(rows: np.ndarray) -> np.ndarray:
        with ThreadPoolExecutor() as pool:  # Pillow decodes without the GIL
            return np.concatenate(list(pool.map(one, [paths[row] for row in rows])))

    return ImageSet(str(folder), len(paths), read)
