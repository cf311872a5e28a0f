"""Your own examples, from .npy and .npz files; nothing is ever unpickled."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from vages.data.splits import Splits, split


def load_array(path: str | Path) -> Float32[np.ndarray, "rows _ ..."]:
    """Read the one array of a .npy or .npz file, one example a row, as float32.

    Integers and booleans are converted and not rescaled: the pixels 0 to 255 stay 0 to 255. All numbers must be
    finite in float32.
    """
    path = Path(path)
    arrays = _read(path)
    if len(arrays) != 1:
        hint = "use load_splits" if set(arrays) == set(Splits._fields) else "save the array alone"
        raise ValueError(f"{path}: expected one array, got {_list(arrays)}; {hint}")
    return _examples(str(path), *arrays.values())


def load_splits(path: str | Path, seed: int, validation: float = 0.1, test: float = 0.1) -> Splits:
    """Read a .npz file's arrays `train`, `validation` and `test`, or divide a file's one array by `split`.

    Each array is read as by `load_array`. Where the file holds the three sets, the other arguments are not used.
    """
    path = Path(path)
    arrays = _read(path)
    if len(arrays) == 1:
        examples = _examples(str(path), *arrays.values())
        try:
            return split(examples, seed, validation, test)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    if set(arrays) != set(Splits._fields):
        raise ValueError(
            f"{path}: expected one array, or the three {_list(Splits._fields)}, got {_list(arrays)}; rename or remove"
        )
    splits = Splits(*(_examples(f"{path}, array {name!r}", arrays[name]) for name in Splits._fields))
    shapes = [list(examples.shape[1:]) for examples in splits]
    if shapes.count(shapes[0]) != 3:
        raise ValueError(
            f"{path}: expected examples of one shape, got {shapes[0]} in train, {shapes[1]} in validation and "
            f"{shapes[2]} in test; reshape them"
        )
    return splits


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name; the array of a .npy file has the name ''."""
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(
            f"{path}: expected a name that ends in .npy or .npz, got {path.suffix or 'no ending'!r}; save the array "
            "with numpy.save"
        )
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none"
        raise FileNotFoundError(f"{path}: expected a file, found {found}; check the path")
    with path.open("rb") as file:
        try:
            content = np.load(file, allow_pickle=False)
            arrays = dict(content) if isinstance(content, np.lib.npyio.NpzFile) else {"": content}
        except Exception as error:  # a damaged file makes NumPy and zipfile raise almost anything
            reason = (str(error) or type(error).__name__).splitlines()[0]
            got = "pickled objects, or no NumPy file at all" if "pickle" in reason else "a file that cannot be read"
            raise ValueError(
                f"{path}: expected arrays of numbers, got {got} ({reason}); save them again with numpy.save"
            ) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # NumPy gives what is no array as bytes
            raise ValueError(f"{path}: expected arrays alone, got the file {name!r} among them; use numpy.savez")
    return arrays


def _examples(name: str, array: np.ndarray) -> np.ndarray:
    """The array as float32, checked; `name` is for the error."""
    if array.dtype.kind not in "biuf":
        hint = "save the real and the imaginary part as two features" if array.dtype.kind == "c" else "save numbers"
        raise ValueError(f"{name}: expected real numbers, got the dtype {array.dtype}; {hint}")
    if array.ndim < 2:
        raise ValueError(
            f"{name}: expected 2 dimensions or more, the first counting examples, got shape {array.shape}; "
            "reshape it, e.g. to (n, 1)"
        )
    if array.size == 0:
        raise ValueError(f"{name}: expected examples, got an empty array of shape {array.shape}; save it again")
    with np.errstate(over="ignore"):
        examples = array.astype(np.float32, order="C")
    finite = np.isfinite(examples)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name}: expected numbers that are finite in float32, got {array[where]} at {where} "
            f"({finite.size - int(finite.sum())} of {finite.size} entries); clean the data"
        )
    return examples


def _list(names) -> str:
    return ", ".join(map(repr, names)) or "none"
