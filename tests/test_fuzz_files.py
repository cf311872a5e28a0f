"""Thousands of damaged and hostile files: every reader returns a value or raises `BadFile`, within a limit on memory.

The suite tries 10,000 mutants per reader; `VAGES_FUZZ=100000 pytest -n0 -rP tests/test_fuzz_files.py` tries more and
shows how many were read and how many refused. Mutants depend only on the seed and their number.
"""

import gzip
import io
import json
import os
import random
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from jaxtyping import config
from PIL import Image

from memory import HEADROOM, little_memory
from torch_files import legacy_file, script_pickle, state_dict_pickle, zipped
from vages.data import load_array, load_images, load_splits
from vages.evaluation.torch_weights import parse_torch
from vages.files import (
    BadFile,
    inflate,
    parse_cifar10,
    parse_idx,
    parse_image,
    parse_json,
    parse_npy,
    parse_npz,
    tar_members,
    zip_members,
)

MUTANTS = int(os.environ.get("VAGES_FUZZ", "10000"))
LIMIT, PIXELS, COUNT = 2**20, 2**14, 50


def test_little_memory_is_little():
    with little_memory(), pytest.raises(MemoryError):
        bytes(2 * HEADROOM)
    assert len(bytes(2 * HEADROOM)) == 2 * HEADROOM


# Sources of mutants: bytes for a reader, and a function that completes them to a file after a mutation. It corrects
# checksums, so the mutation reaches the code behind them.

RNG = np.random.default_rng(0)
PICTURE = (np.add.outer(np.arange(24), np.arange(20)) * 5 + RNG.integers(0, 9, (24, 20))).astype(np.uint8)
Wrap = Callable[[bytes], bytes]


def same(content: bytes) -> bytes:
    return content


def idx() -> bytes:
    return b"\0\0\x08\x03" + struct.pack(">3I", 3, 4, 5) + RNG.bytes(60)


def npy(dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(24).reshape(4, 3, 2).astype(dtype))
    return file.getvalue()


def zip_of(content: bytes, name: str = "x.npy", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for info, data in ((zipfile.ZipInfo(name), content), (zipfile.ZipInfo("y.npy"), npy("u1"))):
            archive.writestr(info, data, method)
    return file.getvalue()


def tar(form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, size in (("a", 10), ("d" * 60 + "/" + "n" * 60, 600), ("b.txt", 0)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = size, 1.5 if form == tarfile.PAX_FORMAT else 1
            archive.addfile(info, io.BytesIO(RNG.bytes(size)))
    return file.getvalue()[: 512 * 14]


def summed(content: bytes) -> bytes:
    """Correct the checksum of every block that looks like a tar header."""
    blocks = [content[at : at + 512] for at in range(0, len(content), 512)]
    for i, block in enumerate(blocks):
        if block[257:260] == b"ust" and len(block) == 512:
            blank = block[:148] + b" " * 8 + block[156:]
            blocks[i] = blank[:148] + b"%06o\0 " % sum(blank) + blank[156:]
    return b"".join(blocks)


def image(form: str, array: np.ndarray = PICTURE, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, form, **options)
    return file.getvalue()


def chunked(content: bytes) -> bytes:
    """Correct the checksum of every PNG chunk, as far as the lengths are valid."""
    pieces, at = [content[:8]], 8
    while at + 12 <= len(content):
        end = at + 12 + int.from_bytes(content[at : at + 4], "big")
        if end > len(content):
            break
        pieces += [content[at : end - 4], struct.pack(">I", zlib.crc32(content[at + 4 : end - 4]))]
        at = end
    return b"".join([*pieces, content[at:]])


def png_rows(content: bytes) -> bytes:
    """A PNG with these bytes as its compressed data."""
    whole = image("PNG")
    start, end = whole.index(b"IDAT"), whole.index(b"IEND") - 8
    pressed = zlib.compress(content)
    return chunked(whole[: start - 4] + struct.pack(">I4s", len(pressed), b"IDAT") + pressed + whole[end:])


JSON = json.dumps({"a": [1, -2.5e3, True, None, "é\n"], "b": {"c": {}, "d": [[], [0]]}, "name": "x"}).encode()
ZIP = zip_of(b"alpha" * 40)
COLOR = np.stack([PICTURE, PICTURE.T.reshape(24, 20), 255 - PICTURE], -1)

WEIGHTS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a.bias": np.ones(2, np.float32)}

Reader = tuple[Callable[[bytes], object], list[tuple[bytes, Wrap]]]
READERS: dict[str, Reader] = {
    "idx": (lambda content: parse_idx(content, "FILE"), [(idx(), same)]),
    "idx.gz": (
        lambda content: parse_idx(inflate(content, "FILE", LIMIT), "FILE"),
        [(gzip.compress(idx(), mtime=0), same), (idx(), lambda content: gzip.compress(content, 1, mtime=0))],
    ),
    "cifar10": (lambda content: parse_cifar10(content, "FILE"), [(b"\3" + RNG.bytes(3072), same)]),
    "npy": (lambda content: parse_npy(content, "FILE", LIMIT), [(npy(), same), (npy("?"), same)]),
    "npz": (
        lambda content: parse_npz(content, "FILE", LIMIT),
        [(zip_of(npy()), same), (zip_of(npy(), method=zipfile.ZIP_STORED), same), (npy(), zip_of)],
    ),
    "zip": (
        lambda content: list(zip_members(io.BytesIO(content), "FILE", LIMIT, COUNT)),
        [(ZIP, same), (ZIP[ZIP.index(b"PK\x01\x02") :], lambda content: ZIP[: ZIP.index(b"PK\x01\x02")] + content)],
    ),
    "tar": (
        lambda content: list(tar_members(io.BytesIO(content), "FILE", LIMIT, COUNT)),
        [(tar(), same), (tar(), summed), (tar(tarfile.PAX_FORMAT), summed), (tar(tarfile.USTAR_FORMAT), summed)],
    ),
    "tar.gz": (
        lambda content: list(tar_members(gzip.GzipFile(fileobj=io.BytesIO(content)), "FILE", LIMIT, COUNT)),
        [(gzip.compress(tar(), mtime=0), same), (tar(), lambda content: gzip.compress(summed(content), 1, mtime=0))],
    ),
    "png": (
        lambda content: parse_image(content, "FILE", PIXELS),
        [
            (image("PNG"), same),
            (image("PNG", COLOR), chunked),
            (image("PNG", PICTURE[..., None].repeat(2, -1)), chunked),
            (b"".join(b"\1" + row.tobytes() for row in PICTURE), png_rows),
        ],
    ),
    "jpeg": (
        lambda content: parse_image(content, "FILE", PIXELS),
        [(image("JPEG"), same), (image("JPEG", COLOR, progressive=True), same)],
    ),
    "bmp": (lambda content: parse_image(content, "FILE", PIXELS), [(image("BMP"), same), (image("BMP", COLOR), same)]),
    "json": (lambda content: parse_json(content, "FILE"), [(JSON, same)]),
    "torch": (
        lambda content: parse_torch(content, "FILE", LIMIT),
        [
            (legacy_file(WEIGHTS), same),
            (state_dict_pickle(WEIGHTS), lambda content: zipped(content, WEIGHTS)),
            (script_pickle(WEIGHTS), lambda content: zipped(content, WEIGHTS)),
            (zipped(state_dict_pickle(WEIGHTS), WEIGHTS), same),
        ],
    ),
}

# Mutations

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0xFFFF,
    0x10000,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
    2**64 - 1,
)
TOKENS = (
    *(b"NaN", b"1e999", b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"9" * 5000, b'"a": 1, "a": 2', b"\xff\xfe", b"-"),
    *(b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"../", b"/", b"\\", b"\0", b"ustar"),
    *(
        b"\xff\xd8",
        b"\xff\xd9",
        b"\xff\xda",
        b"\xff\xc0",
        b"IHDR",
        b"IEND",
        b"tRNS",
        b"iCCP",
        b"zTXt",
        b"'|O'",
        b"(9" * 9,
    ),
    *(b"\x1f\x8b\x08", b"\x78\x9c", b"True", b"99999999999999999", b"20 path=../a\n", b"77777777777", b"\x80"),
    *(b"(", b"t", b"R", b"b", b"u", b"e", b"2", b"q\0", b"h\0", b"\x81", b"\x93", b"\x94", b"cos\nsystem\n", b"Q"),
)


def mutant(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """One to four changes, most of them near the beginning or the end, where headers are."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        size = len(data)
        near = rng.random()
        at = rng.randrange(min(size, 160) or 1) if near < 0.5 else rng.randrange(size or 1)
        at = max(size - 1 - rng.randrange(80), 0) if near > 0.85 else at
        length = 1 + int(rng.expovariate(1 / 8))
        match rng.randrange(9):
            case 0 if size:
                data[at] ^= 1 << rng.randrange(8)
            case 1 if size:
                data[at] = rng.randrange(256)
            case 2:
                width = rng.choice((1, 2, 4, 8))
                number = (rng.choice(NUMBERS) + rng.choice((-1, 0, 0, 1))) % 256**width
                data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
            case 3:
                del data[at:]
            case 4:
                data += rng.choice((b"\0", b"\0" * 512, rng.randbytes(length), bytes(data)))
            case 5:
                token = rng.choice(TOKENS)
                data[at : at + rng.choice((0, len(token)))] = token
            case 6:
                start = rng.randrange(len(other) or 1)
                data[at : at + rng.choice((0, length))] = other[start : start + length]
            case 7:
                del data[at : at + length]
            case 8:
                start = rng.randrange(size or 1)
                data[at:at] = data[start : start + length]
    return bytes(data)


@pytest.mark.parametrize("name", READERS)
def test_mutants(name, as_users_have_it):
    """One in eleven is read with the tests' run-time type checks, which take half of the time."""
    read, sources = READERS[name]
    for content, wrap in sources:
        read(wrap(content))
    rng, accepted, reasons = random.Random(name), 0, set()
    with little_memory():
        for i in range(MUTANTS):
            config.update("jaxtyping_disable", i % 11 > 0)  # coprime to the number of sources
            content, wrap = sources[i % len(sources)]
            hostile = wrap(mutant(rng, content, rng.choice(sources)[0]))
            try:
                read(hostile)
            except BadFile as error:
                text = str(error)
                assert text.startswith("FILE")
                assert text.isprintable()
                reasons.add(re.sub(r"b?'.*'|b?\".*\"|[\d\[\], ()]+", "", text))
            else:
                accepted += 1
    print(f"{name}: {accepted} of {MUTANTS} mutants read, {MUTANTS - accepted} refused for {len(reasons)} reasons")
    assert 0.02 * MUTANTS < accepted < 0.9 * MUTANTS  # both happen, so mutants reach the parsers


# The same through the functions that users call, with files on disk


def images_in_a_zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(10):
            archive.writestr(zipfile.ZipInfo(f"{i}.png"), image("PNG", PICTURE[:4, :6] + np.uint8(i)))
    return file.getvalue()


def images_in_a_tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for i in range(10):
            content = image("JPEG", PICTURE[:8, :8] + np.uint8(i))
            info = tarfile.TarInfo(f"{i}.jpg")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    ("ending", "load", "content"),
    [
        (".npy", load_array, npy()),
        (".npz", lambda path: load_splits(path, 0), zip_of(npy())),
        (".zip", lambda path: load_images(str(path), resize=4), images_in_a_zip()),
        (".tar.gz", lambda path: load_images(str(path)), gzip.compress(images_in_a_tar(), mtime=0)),
    ],
)
def test_mutants_on_a_disk(tmp_path, ending, load, content):
    rng, path = random.Random(ending), tmp_path / f"FILE{ending}"
    for _ in range(MUTANTS // 40):
        path.write_bytes(mutant(rng, content, content))
        try:
            load(path)
        except ValueError as error:
            text = str(error)
        else:
            text = str(path)
        assert str(path) in text
        assert text.isprintable()


# Bombs: a few bytes that declare, or inflate to, far more than the memory


def strided(size: int) -> bytes:
    """A tensor that repeats one number endlessly."""
    one = state_dict_pickle({"a": np.ones(1, np.float32)})
    return one.replace(b"(K\x01t(K\x01t", b"(J" + struct.pack("<i", size) + b"t(K\x00t")


def bombs() -> dict[str, bytes]:
    zeros = bytes(2 * HEADROOM)
    header = b"\0\0\x08\x01" + struct.pack(">I", len(zeros))
    huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"
    info = tarfile.TarInfo("a")
    info.size = len(zeros)
    return {
        "idx": b"\0\0\x0e\x03" + b"\xff" * 12 + bytes(100),
        "idx.gz": gzip.compress(header + zeros, 1),
        "npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(huge)) + huge.encode() + bytes(64),
        "npz": zip_of(npy() + zeros),
        "zip": zip_of(zeros),
        "tar": summed(info.tobuf()) + bytes(2048),
        "tar.gz": gzip.compress(info.tobuf() + zeros + bytes(1024), 1),
        "png": chunked(image("PNG").replace(struct.pack(">II", 20, 24), struct.pack(">II", 2**16, 2**16))),
        "jpeg": image("JPEG").replace(struct.pack(">HH", 24, 20), b"\xff" * 4),
        "bmp": image("BMP").replace(struct.pack("<ii", 20, 24), struct.pack("<ii", 2**16, 2**16)),
        "json": b'{"a":' * 10**6,
        "torch": zipped(strided(2**30), {"a": np.ones(1, np.float32)}),
    }


def test_bombs():
    for name, content in bombs().items():
        assert len(content) < 6 * 2**20
        with little_memory(), pytest.raises(BadFile, match="expected"):
            READERS[name][0](content)
