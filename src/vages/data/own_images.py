"""Your own images, from a folder, an archive or an array."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32
from PIL import Image

from vages.data.arrays import labels_among, one_or_splits, read_arrays, without_labels
from vages.data.decoding import decode_all
from vages.data.images import Images, Labels, scaled
from vages.data.splits import Splits, split_rows
from vages.files import (
    ARCHIVES,
    BadFile,
    archive_members,
    declared_arrays,
    decode_image,
    image_files,
    is_image_member,
    pixels_of,
    read_bytes,
)
from vages.files.limits import MAX_ARCHIVE_BYTES, MAX_IMAGE_BYTES, MAX_MEMBERS

_CHANNELS = (1, 3)
_SETS = ("train", "training", "val", "valid", "validation", "test", "testing")  # folders of sets, not of classes


def load_image_folder(folder: Path, seed: int, resize: int | None = None) -> Images:
    """Load the images in a folder and its subfolders (see `vages.files.image_files`), shuffled and split as by `split`.

    With `resize`, the largest central square is scaled to this size; without it, all images must have one size. If all
    images are in subfolders, two or more of them, these are the classes: a label is the index of the subfolder's name
    among the sorted names, `labels.names`.
    """
    files = image_files(folder, MAX_MEMBERS)
    pixels = decode_all(files, partial(_of_path, resize=resize, folder=folder), str(folder))
    return _divided(pixels, seed, folder, _classes(path.relative_to(folder).as_posix() for path in files))


def load_image_archive(path: Path, seed: int, resize: int | None = None) -> Images:
    """Load the images in a .zip, .tar, .tar.gz or .tgz archive like a folder, without unpacking it on disk."""
    names = []

    def members() -> Iterator[tuple[str, bytes]]:
        for name, content in archive_members(path, MAX_ARCHIVE_BYTES, MAX_MEMBERS, is_image_member, MAX_IMAGE_BYTES):
            names.append(name)
            yield name, content

    pixels = decode_all(members(), partial(_of_member, resize=resize, archive=path), str(path))
    return _divided(pixels, seed, path, _classes(names))


def load_image_array(path: Path, seed: int, *, check: bool = True) -> Images:
    """Load the images in a .npy or .npz file: one array, split by `split`, or `train`, `validation` and `test`.

    An array has the shape (n, height, width), (n, channels, height, width) or (n, height, width, channels) with 1 or
    3 channels, and holds uint8 from 0 to 255, or floats or booleans from 0 to 1. A .npz file may hold labels too (see
    `load_labels`). `check` is that of `load_images`.
    """
    arrays = read_arrays(path)
    images = _image_arrays(path, arrays, check)
    labels = None if len(images) == len(arrays) else labels_among(arrays, path, seed)
    if len(images) == 1:
        return _divided(next(iter(images.values())), seed, path)._replace(labels=labels)
    splits = Splits(**images)
    shapes = [part.shape[1:] for part in splits]
    if shapes.count(shapes[0]) != 3:
        raise BadFile(f"{path}: expected images of one shape, got {', '.join(map(str, shapes))}; reshape them")
    return Images(splits, labels)


def advice_on_labels(path: Path) -> str:
    """Return advice for images without labels, which names images outside the folders of classes."""
    if path.suffix.lower() in (".npy", ".npz"):
        return "save a .npz file with an array 'labels' beside the images"
    names = sorted(_names_in(path))
    folders = [PurePosixPath(name).parent for name in names]
    outer = _outer(set(folders)) if folders else None
    stray = [name for name, folder in zip(names, folders, strict=True) if folder == outer]
    if 0 < len(stray) < len(names):
        more = f" and {len(stray) - 1} more" if len(stray) > 1 else ""
        return f"move {stray[0]}{more} into the folder of a class"
    return "put the images of each class into a folder of their own"


def has_stray(classes: tuple[str, ...]) -> bool:
    """Whether one of these folders contains all others, so that its images lie beside the folders of classes."""
    paths = set(map(PurePosixPath, classes))
    return len(paths) > 1 and _outer(paths) in paths


def _outer(folders: Iterable[PurePosixPath]) -> PurePosixPath:
    """Return the innermost folder that contains all of these folders, or is one of them."""
    return PurePosixPath(os.path.commonpath(list(folders)))


def _names_in(path: Path) -> list[str]:
    """Return the names of the images in a folder or an archive; none for anything else."""
    if path.is_dir():
        return [file.relative_to(path).as_posix() for file in image_files(path, MAX_MEMBERS)]
    names = list[str]()
    if not (path.is_file() and path.name.lower().endswith(ARCHIVES)):
        return names

    def wanted(name: str) -> bool:
        if is_image_member(name):
            names.append(name)
        return False  # the contents are not needed

    list(archive_members(path, MAX_ARCHIVE_BYTES, MAX_MEMBERS, wanted))
    return names


def holds_images(path: Path) -> bool:
    """Whether a path may contain images: a folder, an archive, or a .npy or .npz file of arrays with 3 or more axes.

    Arrays of other data are refused when they are read.
    """
    if path.is_dir() or path.name.lower().endswith(ARCHIVES):
        return True
    if path.suffix.lower() not in (".npy", ".npz"):
        return False
    try:
        arrays = without_labels(declared_arrays(path))
    except (ValueError, OSError):
        return False  # reported when the file is read
    return any(len(shape) > 2 for shape, _ in arrays.values())


def read_image_arrays(path: Path) -> dict[str, Float32[np.ndarray, "n channels height width"]]:
    """Read the images in a .npy or .npz file, see `load_image_array`: one array, or the three sets by name."""
    return _image_arrays(path, read_arrays(path), check=True)


def _image_arrays(path: Path, arrays: dict[str, np.ndarray], check: bool) -> dict[str, np.ndarray]:
    arrays = one_or_splits(path, arrays)
    found = arrays.values()
    if check and all(array.dtype == np.uint8 for array in found) and max(array.max(initial=0) for array in found) == 1:
        raise BadFile(
            f"{path}: expected uint8 from 0 to 255, got 1 as the largest, nearly black; save bool, or multiply by 255"
        )
    if len(arrays) == 1:
        return {name: as_images(str(path), array, check=check) for name, array in arrays.items()}
    return {name: as_images(f"{path}, array {name!r}", arrays[name], check=check) for name in Splits._fields}


def check_image_shape(name: str, shape: tuple[int, ...], *, probable: bool = True) -> None:
    """Raise unless an array of this shape contains images. `name` is for errors.

    If `probable`, shapes of three axes that look like one image with channels, or like (height, width, n), are refused.
    """
    first, height, width = shape if probable and len(shape) == 3 else (0, 0, 0)
    explicit = f"or give images of {height} × {width} as (n, {height}, {width}, 1)"
    if 0 in shape:
        hint = "save it again"
    elif len(shape) == 2:
        hint = "reshape it, or train on rows: vages train board"
    elif width in (1, 3, 4) and height >= 2 * width:
        hint = f"stack images, {explicit}, or train on rows: vages train board"
    elif first and first == height and width >= 4 * height:
        hint = f"move the axis of images to the front, {explicit}"
    elif len(shape) == 3 or (len(shape) == 4 and (shape[1] in _CHANNELS or shape[3] in _CHANNELS)):
        return
    elif len(shape) == 4 and 4 in (shape[1], shape[3]):
        hint = "leave the alpha channel out"
    else:
        hint = "move the axis of images to the front, or reshape it"
    raise BadFile(
        f"{name}: expected images, (n, height, width), (n, height, width, channels) or (n, channels, height, width) "
        f"with 1 or 3 channels, got {list(shape)}; {hint}"
    )


def in_the_middle(image: Image.Image, width: int, height: int) -> Image.Image:
    """Crop the largest central part with these proportions, and scale it to this size by the bilinear filter."""
    cut_width = min(image.width, max(1, round(image.height * width / height)))
    cut_height = min(image.height, max(1, round(image.width * height / width)))
    left, top = (image.width - cut_width) // 2, (image.height - cut_height) // 2
    cut = image.crop((left, top, left + cut_width, top + cut_height))
    return cut.resize((width, height), Image.Resampling.BILINEAR)


def _of_path(path: Path, resize: int | None, folder: Path) -> tuple[str, np.ndarray]:
    return path.relative_to(folder).as_posix(), _pixels(read_bytes(path, MAX_IMAGE_BYTES), str(path), resize)


def _of_member(member: tuple[str, bytes], resize: int | None, archive: Path) -> tuple[str, np.ndarray]:
    return member[0], _pixels(member[1], f"{archive}, member {member[0]!r}", resize)


def _pixels(content: bytes, name: str, resize: int | None) -> np.ndarray:
    image = decode_image(content, name)
    return pixels_of(image if resize is None else in_the_middle(image, resize, resize))


def as_images(name: str, array: np.ndarray, *, check: bool = False) -> np.ndarray:
    """Convert an array to float32 images in [0, 1], channels first.

    `name` is for errors, and `check` as in `load_images`.
    """
    check_image_shape(name, array.shape, probable=check)
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[1] not in _CHANNELS:
        array = np.moveaxis(array, 3, 1)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(scaled(array))
    if array.dtype.kind not in "bf":
        raise BadFile(f"{name}: expected uint8, or floats from 0 to 1, got {array.dtype}; cast or rescale it")
    least, most = np.min(array), np.max(array)
    if np.isnan(least):
        raise BadFile(f"{name}: expected numbers from 0 to 1, got nan; clean the data")
    if least < 0 or most > 1:
        raise BadFile(
            f"{name}: expected images of numbers from 0 to 1, got {least:.6g} to {most:.6g}; rescale it or save uint8, "
            "or train on rows: vages train board"
        )
    return array.astype(np.float32, order="C")


class _Classes(NamedTuple):
    names: tuple[str, ...]
    labels: Int32[np.ndarray, "n"]


def check_classes(name: str, folders: tuple[str, ...]) -> None:
    """Raise if the folders are those of sets, not classes: each would be a class, and all would be trained on.

    `name` is for the error.
    """
    paths = [PurePosixPath(folder) for folder in folders]
    outer = _outer(paths) if paths else None
    tops = {path.relative_to(outer).parts[:1] for path in paths if outer is not None}
    if len(tops) > 1 and all(top and top[0].lower() in _SETS for top in tops):
        raise BadFile(
            f"{name}: expected a folder for each class, got the sets {', '.join(sorted(top[0] for top in tops))}; give "
            "the training folder alone, or save a .npz file with train, validation, test and train_labels, "
            "validation_labels, test_labels"
        )


def _classes(names: Iterable[str]) -> _Classes | None:
    """Return the classes of images by their folders, in the order of their names; None without class folders."""
    folders = [PurePosixPath(name).parent.as_posix() for name in sorted(names)]
    classes, labels = np.unique(folders, return_inverse=True)
    return None if len(classes) < 2 or "." in classes else _Classes(tuple(map(str, classes)), labels.astype(np.int32))


def _divided(images: np.ndarray, seed: int, path: Path, classes: _Classes | None = None) -> Images:
    """Split images into sets. Bytes are scaled to float32 only after the split, to save memory."""
    try:
        parts = split_rows(len(images), seed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    divided = (np.ascontiguousarray(images[rows]) for rows in parts)
    splits = Splits(*(scaled(part) if part.dtype == np.uint8 else part for part in divided))
    if classes is None:
        return Images(splits, None)
    return Images(splits, Labels.named(classes.names, *(classes.labels[rows] for rows in parts)))
