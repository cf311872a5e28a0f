"""PyTorch files of float32 arrays, written by hand in the formats of `torch.save` and `torch.jit.save`."""

import io
import pickle
import struct
import zipfile

import numpy as np

Arrays = dict[str, np.ndarray]


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def whole(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"J" + struct.pack("<i", value)


def tensor(
    array: np.ndarray, key: str, *, legacy: bool = False, offset: int = 0, view: np.ndarray | None = None
) -> bytes:
    """A pickled tensor of an array, or of another view of its data."""
    view = array if view is None else view
    strides = [stride // array.itemsize for stride in view.strides]
    sizes = lambda numbers: b"(" + b"".join(map(whole, numbers)) + b"t"
    kind = {"float32": b"Float", "int64": b"Long"}[array.dtype.name]
    storage = b"(" + text("storage") + b"ctorch\n" + kind + b"Storage\n" + text(key) + text("cpu") + whole(array.size)
    storage += (b"N" if legacy else b"") + b"tQ"
    rest = whole(offset) + sizes(view.shape) + sizes(strides) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"


def state_dict_pickle(arrays: Arrays, *, legacy: bool = False) -> bytes:
    tensors = [tensor(array, str(i), legacy=legacy) for i, array in enumerate(arrays.values())]
    items = b"".join(text(name) + one for name, one in zip(arrays, tensors, strict=True))
    remarks = b"}" + text("_metadata") + b"ccollections\nOrderedDict\n)Rs"
    return b"\x80\x02ccollections\nOrderedDict\n)Rq\x00(" + items + b"u" + remarks + b"b."


def script_pickle(arrays: Arrays) -> bytes:
    """Nested modules, according to the dots in the names."""
    keys = {name: str(i) for i, name in enumerate(arrays)}

    def module(prefix: str, names: list[str]) -> bytes:
        items, below = text("training") + b"\x89", {}
        for name in names:
            head, dot, _ = name.removeprefix(prefix).partition(".")
            if dot:
                below.setdefault(head, []).append(name)
            else:
                items += text(head) + tensor(arrays[name], keys[name])
        for head, inner in below.items():
            items += text(head) + module(f"{prefix}{head}.", inner)
        return b"c__torch__.net\nModule\n)\x81}(" + items + b"ub"

    return b"\x80\x02" + module("", list(arrays)) + b"."


def zipped(content: bytes, arrays: Arrays) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), content)
        for i, array in enumerate(arrays.values()):
            archive.writestr(zipfile.ZipInfo(f"archive/data/{i}"), array.tobytes())
        archive.writestr(zipfile.ZipInfo("archive/version"), b"3\n")
    return file.getvalue()


def legacy_file(arrays: Arrays) -> bytes:
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    head = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, machine)]
    keys = [str(i) for i in range(len(arrays))]
    stored = [struct.pack("<q", array.size) + array.tobytes() for array in arrays.values()]
    return b"".join([*head, state_dict_pickle(arrays, legacy=True), pickle.dumps(keys, 2), *stored])
