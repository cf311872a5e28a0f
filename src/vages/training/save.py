"""Saving and loading a model and its posterior: one file with arrays in safetensors format and a JSON description.

Nothing is unpickled, and no code from a file is run. Classes and functions are looked up by name in fixed tables.
"""

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import safetensors.numpy
from jax.core import Tracer

from vages import __version__
from vages.checks import check_kind
from vages.files.json_files import parse_json
from vages.memory import host_memory_limit
from vages.models import EBLVM
from vages.posteriors import Posterior
from vages.storage.directory import Directory
from vages.storage.errors import BadFile, Unexpected, reading
from vages.terminal import printable
from vages.training.devices import is_writer
from vages.training.structure import build, check_fits, completed, describe, difference, is_array, others
from vages.training.trees import key_bits

FORMAT = 1
_ENDING = ".safetensors"
_MAX_HEADER = 2**22  # bytes of names, shapes and the description
_COPIES = 3  # of the arrays in memory while they are read
_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS += ("bfloat16", "float16", "float32", "float64")
_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")


def save(
    path: str | os.PathLike[str], model: EBLVM, posterior: Posterior | None = None, *, overwrite: bool = False
) -> None:
    """Write a model, and its posterior if there is one, to a new file `NAME.safetensors`.

    **Arguments:**

    - `path`: The file. Its folder must exist.
    - `model`, `posterior`: Those of one seed, or of several with a leading axis. For your own classes and functions,
        the file only has arrays and names, and `load` needs `like`.
    - `overwrite`: Whether to replace an existing file.

    The file is renamed into place once it is completely on disk. In a cluster, the first process writes it.
    """
    path = Path(path)
    check_kind("model", model, EBLVM, "a model", "give fitted.model, say")
    check_kind("posterior", posterior, Posterior | None, "a posterior, or none", "give fitted.posterior, say")
    if path.suffix != _ENDING:
        raise ValueError(
            f"path: expected a name that ends in {_ENDING}, got {path.name!r}; write {path.name + _ENDING!r}"
        )
    if not is_writer():
        return
    with Directory(path.parent) as folder:
        if not folder.exists():
            raise FileNotFoundError(f"path: expected a folder that exists, got {path.parent}; make it first")
        if folder.check_file(path.name) and not overwrite:
            raise FileExistsError(f"path: expected a new file, got {path}; take another name, or give overwrite=True")
        folder.write_bytes(path.name, _packed(model, posterior))


def load(path: str | os.PathLike[str], like: Any = None) -> tuple[EBLVM, Posterior | None]:
    """Read a file from `save`: (model, posterior), where the posterior is None if none was saved.

    **Arguments:**

    - `path`: The file.
    - `like`: A model, or a pair (model, posterior), built in the same way as the saved one. Its values do not matter,
        and shapes from `eqx.filter_eval_shape` are sufficient. It is needed if your own classes or functions were
        saved, such as the energy of an `EnergyModel`. Everything that is not an array is taken from it.

    Arrays are bit-identical to the saved ones. Settings that a class has gained since then take their defaults.
    """
    path = Path(path)
    about, stored = _read(path)
    kinds = about["arrays"]
    with reading(str(path), "a model that vages.save wrote"):
        if set(kinds) != set(stored):
            raise Unexpected("other arrays than it describes")
        arrays = {name: _restored(path, name, stored[name], *kind) for name, kind in kinds.items()}
        parts = {part: completed(about[part]) for part in ("model", "posterior")}
    if like is not None:
        return _filled(path, parts, arrays, like)
    missing = [*others(parts["model"], "the model"), *others(parts["posterior"], "the posterior")]
    if missing:
        pair = "model" if parts["posterior"] is None else "(model, posterior)"
        raise ValueError(
            f"like: expected {pair}, built as the saved one was, got none; {missing[0]}, which a file cannot hold: "
            f"write load(…, like={pair})"
        )
    with reading(str(path), "a model that vages.save wrote"):
        built = {part: build(node, part, arrays) for part, node in parts.items()}
        if not isinstance(built["model"], EBLVM) or not isinstance(built["posterior"], Posterior | None):
            raise Unexpected("something else in their places")
        again, used = _described(built)
        if difference(parts, again) is not None or set(used) != set(arrays):
            raise Unexpected("parts that nothing refers to")
    try:
        check_fits(built["model"], built["posterior"])
    except Unexpected as error:
        advice = "build the same model and give it as like"
        raise BadFile(f"{path}: expected a model that can be evaluated, got {error}; {advice}") from None
    return built["model"], built["posterior"]


def _described(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = {}
    return {part: describe(value, part, arrays) for part, value in values.items()}, arrays


def _packed(model: EBLVM, posterior: Posterior | None) -> bytes:
    parts, arrays = _described({"model": model, "posterior": posterior})
    kinds = {name: _kind(name, array) for name, array in arrays.items()}
    text = json.dumps({"format": FORMAT, "vages": __version__, **parts, "arrays": kinds}, allow_nan=False)
    parse_json(text.encode(), "model")  # raises if it is nested deeper than `load` allows
    bits = {name: np.asarray(key_bits(array), order="C") for name, array in arrays.items()}
    bits = {name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array for name, array in bits.items()}
    content = safetensors.numpy.save(bits, {"vages": text})
    if (size := _header_size(content)) > _MAX_HEADER:
        raise ValueError(f"model: expected at most {_MAX_HEADER} bytes to describe it, got {size}; join its arrays")
    return content


def _kind(name: str, array: Any) -> list[str]:
    """Return the kind of an array (jax, numpy, scalar or key), and its dtype or, for keys, the implementation."""
    if isinstance(array, Tracer | jax.ShapeDtypeStruct):
        raise ValueError(
            f"{name}: expected numbers, got a shape, {array.dtype}{list(array.shape)}; save outside of jit"
        )
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        kind, dtype, known = "key", str(jax.random.key_impl(array)), _KEYS
    else:
        kind = "jax" if isinstance(array, jax.Array) else "numpy" if isinstance(array, np.ndarray) else "scalar"
        dtype, known = array.dtype.name, _NUMBERS
    if dtype not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, got {dtype}; convert it")
    return [kind, dtype]


def _header_size(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays in a file, which must fit into memory."""
    with Directory(path.parent) as folder:
        if not folder.exists():
            raise FileNotFoundError(f"{path}: expected a file, got no folder {path.parent}; check the path")
        content = folder.read_bytes(path.name, host_memory_limit() // _COPIES)
    if not 0 < _header_size(content) <= min(_MAX_HEADER, len(content) - 8):
        raise BadFile(f"{path}: expected a safetensors file, got something else or a part of one; get the file again")
    metadata = parse_json(content[8 : 8 + _header_size(content)], str(path)).get("__metadata__")
    text = metadata.get("vages") if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise BadFile(f"{path}: expected a model that vages.save wrote, got arrays of another program; check the path")
    about = parse_json(text.encode(), str(path))
    number = about.get("format")
    if type(number) is int and number > FORMAT:
        raise BadFile(
            f"{path}: expected format {FORMAT}, got format {str(number)[:40]}, of a newer vages; update it to read this"
        )
    with reading(str(path), "a model that vages.save wrote"):
        kinds = about.get("arrays")
        if number != FORMAT or not isinstance(kinds, dict) or not {"model", "posterior"} <= set(about):
            raise Unexpected("another description")
        if not all(isinstance(kind, list) and [*map(type, kind)] == [str, str] for kind in kinds.values()):
            raise Unexpected("arrays of unknown kinds")
        return about, safetensors.numpy.load(content)


def _restored(path: Path, name: str, array: np.ndarray, kind: str, dtype: str) -> Any:
    if kind == "key" and dtype in _KEYS and array.dtype == np.uint32:
        return jax.random.wrap_key_data(jnp.asarray(array), impl=dtype)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        array = array.view(ml_dtypes.bfloat16)
    if kind not in ("jax", "numpy", "scalar") or array.dtype.name != dtype or (kind == "scalar" and array.ndim):
        raise Unexpected(
            f"{array.dtype}{list(array.shape)} for {name[:80]!r}, described as {kind[:20]!r} {dtype[:20]!r}"
        )
    if dtype == "bool" and array.view(np.uint8).max(initial=0) > 1:
        raise Unexpected(f"bytes that are neither 0 nor 1 for the booleans {name[:80]!r}")
    if kind != "jax":
        return array[()] if kind == "scalar" else array.copy()
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise BadFile(
            f"{path}: expected JAX to have 64 bits, as {name[:80]!r} is {dtype}, got jax_enable_x64=False; call "
            "jax.config.update('jax_enable_x64', True) first"
        )
    return jnp.asarray(array)


def _filled(path: Path, parts: dict[str, Any], arrays: dict[str, Any], like: Any) -> tuple[EBLVM, Posterior | None]:
    """Return `like` with the arrays of the file, or raise ValueError if its structure differs."""
    model, posterior = like if isinstance(like, tuple) and len(like) == 2 else (like, None)
    check_kind("like", model, EBLVM, "a model, or a pair (model, posterior)", "build it as it was saved")
    check_kind("like", posterior, Posterior | None, "a pair (model, posterior)", "build it as it was saved")
    if parts["posterior"] is not None and posterior is None:
        raise ValueError(
            f"like: expected a pair, as {path.name} has a posterior, got a model alone; write like=(model, posterior)"
        )
    if parts["posterior"] is None and posterior is not None:
        raise ValueError(f"like: expected a model, as {path.name} has no posterior, got a pair; write like=model")
    given = {"model": model, "posterior": posterior}
    nodes, wanted = _described(given)
    told = lambda found, name: (
        f"{found[name].dtype.name}{list(found[name].shape)}" if name in found else "no such array"
    )
    pairs = ((printable(name[:80]), told(arrays, name), told(wanted, name)) for name in {**arrays, **wanted})
    found = next((pair for pair in pairs if pair[1] != pair[2]), None) or difference(parts, nodes)
    if found is not None:
        place, expected, got = found
        raise ValueError(f"like: expected {expected} for {place}, as in {path.name}, got {got}; build the same model")
    name = lambda where: jax.tree_util.keystr(where, simple=True, separator="/")
    replaced = jax.tree_util.tree_map_with_path(lambda at, x: arrays[name(at)] if is_array(x) else x, given)
    return replaced["model"], replaced["posterior"]
