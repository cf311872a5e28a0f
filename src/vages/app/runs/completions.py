"""Parts of `vages inpaint` for any run: the examples, the mask of hidden entries, and the picture of images."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from vages.app.report import sheet_png
from vages.app.runs.loaded import Run
from vages.app.runs.own_examples import own_examples
from vages.bounds import IMAGES, check_bounds
from vages.files import is_image_name, read_image, read_npy
from vages.terminal import printable

SHOWN = 1024  # images in a picture, at most
COUNT = 10  # of the run's own examples, by default
HIDDEN = ("half", "left", "center")
_NAMED = 8  # coordinates that are listed by name


class Chosen(NamedTuple):
    """The examples to complete, and their source: a split of the run with row numbers, or a file with names."""

    v: np.ndarray
    source: str
    rows: dict[str, np.ndarray] = {}  # noqa: RUF012
    named: dict[str, Any] = {}  # noqa: RUF012


def chosen_examples(run: Run, file: str | Path | None, count: int | None, seed: int) -> Chosen:
    """Return all or the first `count` examples of a file or folder, or random held-out examples of the run."""
    if count is not None:
        check_bounds(count=(count, IMAGES))
    if file is not None:
        own = own_examples(run, file)
        _check_count(count, len(own.v), printable(file))
        names = list(own.names[: count or len(own.v)])
        return Chosen(own.v[: len(names)], printable(file), named={"names": names})
    source, examples = run.held_out
    count = min(COUNT, len(examples)) if count is None else count
    _check_count(count, len(examples), f"the {source} examples")
    rows = np.sort(np.random.default_rng(seed).permutation(len(examples))[:count])
    return Chosen(np.asarray(examples[rows]), source, {f"{source}_rows": rows})


def _check_count(count: int | None, there: int, what: str) -> None:
    if count is not None and count > there:
        raise ValueError(f"count: expected at most {there}, the number of {what}, got {count}; ask for fewer")


def hidden_part(run: Run, mask: str) -> Bool[np.ndarray, "..."]:
    """Return a mask of hidden entries: `hidden_entries` for lists and non-images, else `hidden_pixels`."""
    shape, image = run.model.v.shape, run.image_shape
    if image is None or _is_list(mask):
        return hidden_entries(mask, shape)
    return hidden_pixels(mask, image).reshape(shape)


def hidden_pixels(mask: str, shape: tuple[int, ...]) -> Bool[np.ndarray, "channels height width"]:
    """Return a mask that is True at the hidden pixels of an image (channels, height, width).

    `half` hides the lower half, `left` the left half, `center` the middle half of rows and columns. An image file is
    white where pixels are hidden and black where they are kept; a .npy file is true or 1 where they are hidden. A file
    has the shape (height, width) or that of the image.
    """
    _, height, width = shape
    hidden = np.zeros((height, width), bool)
    if mask == "half":
        hidden[height // 2 :] = True
    elif mask == "left":
        hidden[:, : width // 2] = True
    elif mask == "center":
        hidden[height // 4 : height - height // 4, width // 4 : width - width // 4] = True
    elif is_image_name(mask):
        hidden = read_image(Path(mask)).mean(axis=0) > 127
    elif mask.lower().endswith(".npy"):
        hidden = _read_mask(mask)
        hidden = hidden.reshape(shape) if hidden.shape == (math.prod(shape),) else hidden
    else:
        raise ValueError(f"mask: expected {', '.join(HIDDEN)}, or a file that ends in .npy or .png, got {mask!r}")
    if hidden.shape not in (shape, shape[1:]):
        raise ValueError(
            f"{mask}: expected a mask of {height} rows and {width} columns, got the shape {hidden.shape}; resize it"
        )
    check_hidden(mask, hidden)
    return np.broadcast_to(hidden, shape)


def hidden_entries(mask: str, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."]:
    """Return a mask of hidden entries: the second `half`, a list such as 0,3,5, or a .npy file."""
    size = math.prod(shape)
    hidden = np.zeros(size, bool)
    if mask == "half":
        hidden[size // 2 :] = True
    elif _is_list(mask):
        numbers = [int(word) for word in mask.split(",")]
        if max(numbers) >= size:
            raise ValueError(f"mask: expected entries from 0 to {size - 1}, got {max(numbers)}; choose others")
        hidden[numbers] = True
    elif mask.lower().endswith(".npy"):
        array = _read_mask(mask)
        if array.shape != shape:
            raise ValueError(
                f"{mask}: expected true or false for each entry of {shape}, got the shape {array.shape}; write such a "
                "file"
            )
        hidden = array.reshape(-1)
    else:
        raise ValueError(f"mask: expected half, numbers of entries (0,3,5), or a .npy file, got {mask!r}; choose one")
    check_hidden("mask", hidden)
    return hidden.reshape(shape)


def check_hidden(name: str, hidden: np.ndarray) -> None:
    """Raise ValueError unless some entries are hidden and some are known."""
    if hidden.all() or not hidden.any():
        got = "no known" if hidden.all() else "no hidden"
        raise ValueError(f"{name}: expected both hidden and known entries, got {got} ones; hide a part")


def _is_list(mask: str) -> bool:
    return all(word.strip().isdecimal() for word in mask.split(","))


def _read_mask(mask: str) -> Bool[np.ndarray, "..."]:
    array = read_npy(Path(mask), 2**26)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{mask}: expected true or 1 where something is hidden, else false or 0, got other numbers")
    return array.astype(bool)


def coordinates(chosen: Bool[np.ndarray, "..."]) -> str:
    """Return the names of the first chosen coordinates, and how many more there are."""
    names = [f"v[{','.join(map(str, place))}]" for place in np.argwhere(chosen)[: _NAMED + 1].tolist()]
    more = int(chosen.sum()) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"


def masked(originals: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Return the images with gray in place of the hidden pixels."""
    return np.where(hidden, np.float32(0.5), originals)


def completions_png(
    originals: np.ndarray, hidden: np.ndarray, completed: np.ndarray, image: tuple[int, ...] | None = None
) -> bytes:
    """Return a PNG with rows of images: the originals, the masked originals, and each completion (tries, n, …)."""
    sheet = np.stack([originals, masked(originals, hidden), *completed])
    sheet = sheet[:SHOWN, : max(1, SHOWN // len(sheet))]
    columns = sheet.shape[1]
    shape = originals.shape[1:] if image is None else image
    return sheet_png(np.asarray(sheet, np.float32).reshape(-1, *shape), columns=columns)
