"""Examples that a user provides: image files, a folder of images, rows of an array or a table, training rows.

Image files are cropped around the center to the model's aspect ratio, scaled (bilinear) to its size, and converted to
grayscale or RGB; pixels are in [0, 1]. Arrays and tables must have the shape of the model's examples.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from vages.app.runs.loaded import Run
from vages.checks import check_states
from vages.data.arrays import ENDINGS as ARRAYS
from vages.data.arrays import as_examples, list_of, read_arrays
from vages.data.converted_images import Shape, convert_image
from vages.data.images import scaled
from vages.data.own_images import as_images
from vages.files import BadFile, decode_image, image_files, is_image_name, read_bytes
from vages.files.image_folder import ENDINGS
from vages.files.limits import MAX_IMAGE_BYTES, MAX_MEMBERS
from vages.memory import check_memory
from vages.models import NoiseConditionalEBLVM
from vages.terminal import printable

Example = int | str | Path  # a training row, FILE, or FILE:ROW
_PIXELS = 2**24  # of an image file, at most
_LOOKED_AT = 10_000  # training examples whose range is checked


class OwnExamples(NamedTuple):
    """Examples (n, …) on the model's scale, and their names."""

    v: Float32[np.ndarray, "n ..."]
    names: tuple[str, ...]


def own_examples(run: Run, place: str | Path) -> OwnExamples:
    """Read the examples of an image file, a folder of images, or the rows of a .npy, .npz or .csv file."""
    path = Path(place)
    if path.is_dir():
        found = image_files(path, MAX_MEMBERS)
        names = [one.relative_to(path).as_posix() for one in found]
    elif path.suffix.lower() in ARRAYS:
        v = _rows(run, path)
        return OwnExamples(v, tuple(f"{printable(path.name)}:{i}" for i in range(len(v))))
    elif is_image_name(path.name):
        found, names = [path], [path.name]
    else:
        raise ValueError(
            f"{printable(path)}: expected an image ({', '.join(ENDINGS)}), a folder of images, or a .npy, .npz or .csv "
            f"file, got {'none' if not path.exists() else 'another file'}; check the path"
        )
    shape = _shape_of_images(run, path)
    check_memory({"the images": 2 * 4 * len(found) * math.prod(shape)}, "give fewer")
    one = partial(fitted_image, shape=shape)
    images = [one(read_bytes(file, MAX_IMAGE_BYTES), str(file)) for file in found]
    v = run.standardized(np.stack(images).reshape(-1, *run.model.v.shape))
    check_states(str(path), v, run.model.v)
    return OwnExamples(v, tuple(map(printable, names)))


def ends_of(run: Run, between: tuple[Example, Example]) -> tuple[Float32[np.ndarray, "2 ..."], dict[str, Any]]:
    """Return two examples, and their record for a result."""
    ends = [own_example(run, one) for one in between]
    about: dict[str, Any] = {"between": [end.names[0] for end in ends]}
    if all(str(one).isdecimal() for one in between):
        about["training_rows"] = [int(str(one)) for one in between]
    return np.concatenate([end.v for end in ends]), about


def random_pair(run: Run, seed: int) -> tuple[int, int]:
    """Return the numbers of two random training examples."""
    first, second = np.random.default_rng(seed).integers(len(run.data.splits.train), size=2).tolist()
    return first, second


def own_example(run: Run, which: Example, option: str = "between") -> OwnExamples:
    """Return one example: a training example by its number, from 0; the only example of a file; or FILE:ROW."""
    text = str(which)
    if text.isdecimal() or isinstance(which, int):
        train, row = run.data.splits.train, int(text)
        if not 0 <= row < len(train):
            raise ValueError(
                f"{option}: expected a file, or the number of a training example, 0 to {len(train) - 1}, got {row}; "
                "choose one"
            )
        return OwnExamples(np.asarray(train[row : row + 1]), (f"training row {row}",))
    head, _, row = text.rpartition(":")
    if head and row.isdecimal() and not Path(text).exists():
        found = own_examples(run, head)
        if int(row) >= len(found.v):
            raise ValueError(f"{printable(head)}: expected a row from 0 to {len(found.v) - 1}, got {row}; choose one")
        return OwnExamples(found.v[int(row) : int(row) + 1], found.names[int(row) : int(row) + 1])
    found = own_examples(run, text)
    if len(found.v) != 1:
        raise ValueError(
            f"{printable(text)}: expected one example, got {len(found.v)}; say which, as {printable(text)}:0"
        )
    return found


def needs_context(run: Run) -> bool:
    """Whether the model needs a context; without a label, a noise-conditional model is that of all classes."""
    context = run.data.context
    return context is not None and not (isinstance(run.model, NoiseConditionalEBLVM) and set(context) == {"label"})


def fitted_image(content: bytes, name: str, shape: Shape) -> Float32[np.ndarray, "channels height width"]:
    """Convert an image file to the shape of the model's images: cropped, scaled, and grayscale or RGB.

    `content` is a PNG, JPEG or BMP file within the limits of `vages.files`.
    """
    return scaled(convert_image(decode_image(content, name, _PIXELS), shape))


def _shape_of_images(run: Run, path: Path) -> Shape:
    """Return the shape of the run's images; raise ValueError if its examples are not images in [0, 1]."""
    shape = run.image_shape
    if shape is None:
        raise ValueError(
            f"{printable(path)}: expected a .npy, .npz or .csv file with {run.model.v.size} numbers in each row, as "
            f"the examples of {run.path} are not images, got an image; give rows"
        )
    if run.recipe.parts is None:  # a custom recipe may have pixels of any range
        some = np.asarray(run.in_units(run.data.splits.train[:_LOOKED_AT]))
        near = 0.0 if run.units is None else 1e-6  # the rounding of standardized numbers that are converted back
        if some.min() < -near or some.max() > 1 + near:
            raise ValueError(
                f"{printable(path)}: expected a .npy file of images in the data's own numbers, {some.min():.4g} to "
                f"{some.max():.4g}, got an image file, whose pixels are from 0 to 1; give an array"
            )
    return shape


def _rows(run: Run, path: Path) -> Float32[np.ndarray, "n ..."]:
    arrays = read_arrays(path)
    if len(arrays) != 1 and "v" not in arrays:
        raise BadFile(f"{path}: expected one array, or one with the name 'v', got {list_of(arrays)}; save it alone")
    array = arrays["v"] if "v" in arrays else next(iter(arrays.values()))
    domain = run.model.v
    if array.dtype == np.uint8 and run.image_shape is not None and run.recipe.parts is not None:
        array = scaled(array)
    if run.is_of_images and run.recipe.parts is not None and array.shape[1:] != (domain.size,):
        v = as_images(str(path), array)
    else:
        v = as_examples(str(path), array, np.float32 if run.units is None else np.float64)
    if v.shape[1:] not in (domain.shape, run.image_shape or domain.shape, (domain.size,)):
        raise BadFile(
            f"{path}: expected examples of the shape {domain.shape}, that of the model of {run.path}, got "
            f"{v.shape[1:]}; choose others"
        )
    v = run.standardized(v.reshape(-1, *domain.shape))
    check_states(str(path), v, domain)
    return v
