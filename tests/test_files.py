"""Every reader against the library that wrote the file, and against invalid files."""

import gzip
import io
import itertools
import os
import pickle
import re
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from memory import HEADROOM, little_memory
from vages.files import (
    BadFile,
    archive_members,
    decode_image,
    image_files,
    inflate,
    parse_cifar10,
    parse_idx,
    parse_image,
    parse_json,
    parse_npy,
    parse_npz,
    read_bytes,
    read_image,
    read_json,
    read_npy,
    read_npz,
    tar_members,
    zip_members,
)
from vages.files.limits import max_unpacked
from vages.storage import errors

LIMIT = 2**20
RNG = np.random.default_rng(0)


def numbers(dtype, shape):
    """Random numbers of a type, for integers over the whole range, without casts of floats."""
    if np.dtype(dtype).kind == "f":
        return RNG.normal(size=shape).astype(dtype)
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def refused(match, function, *args):
    """The call raises `BadFile` with one line in our words that names the file and ends with advice.

    The library's own message is in the error's cause, and may be matched as well.
    """
    with pytest.raises(BadFile) as error:
        function(*args)
    text, cause = str(error.value), error.value.__cause__
    assert re.search(match, f"{text}\n{cause}")
    if cause is not None and not isinstance(cause, errors.Unexpected):
        assert not str(cause) or str(cause) not in text
    assert text.startswith(("FILE", "/"))
    assert text.isprintable()
    assert " expected " in text
    assert text.count("; ") == 1


def cuts(content, parse, *args):
    """Truncated anywhere, or with additional bytes: refused."""
    shortened(content, parse, *args)
    refused("expected", parse, content + b"\0", "FILE", *args)
    refused("expected", parse, content + content, "FILE", *args)


def shortened(content, parse, *args):
    """Truncated anywhere: refused."""
    for length in {
        *range(0, len(content), max(1, len(content) // 97)),
        *range(max(0, len(content) - 40), len(content)),
    }:
        refused("expected", parse, content[:length], "FILE", *args)


# Bytes


def test_bytes_within_a_limit(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    refused("got 5", read_bytes, tmp_path / "x", 4)
    for path, found in ((tmp_path, "a folder"), (tmp_path / "none", "none"), (tmp_path / "pipe", "something else")):
        if found == "something else":
            os.mkfifo(path)
        with pytest.raises(FileNotFoundError, match=f"{path}: .*got {found}"):
            read_bytes(path, 5)
    monkeypatch.setattr(errors.os, "fstat", lambda handle: SimpleNamespace(st_size=4))
    refused("got a different number", read_bytes, tmp_path / "x", 4)


@pytest.mark.parametrize("compress", [zlib.compress, gzip.compress])
def test_inflating(compress):
    content = bytes(1000) + RNG.bytes(1000)
    pressed = compress(content)
    assert inflate(pressed, "FILE", 2000) == content
    refused("1999 bytes", inflate, pressed, "FILE", 1999)
    for length in range(0, len(pressed), 13):
        refused("got a part", inflate, pressed[:length], "FILE", 2000)
    refused("got a part", inflate, pressed + b"abc", "FILE", 2000)
    wrong = pressed[:-8] + bytes([pressed[-8] ^ 1]) + pressed[-7:-1] + bytes([pressed[-1] ^ 1])
    refused("damaged|2000 bytes", inflate, wrong, "FILE", 2000)


# idx


def idx_bytes(array):
    codes = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
    dtype = array.dtype.newbyteorder(">")
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, codes[dtype.str[1:]], array.ndim, *array.shape)
        + array.astype(dtype).tobytes()
    )


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_idx(dtype):
    array = numbers(dtype, (3, 4, 2))
    content = idx_bytes(array)
    got = parse_idx(content, "")
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    cuts(content, parse_idx)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1, 2]), "idx file"),
        (b"\0\0\x08\0", "idx file"),
        (b"\0\0\x08\x09" + bytes(40), "idx file"),
        (b"\0\0\x0a\x01\0\0\0\x01\0", "idx file"),
        (b"\0\0\x08\x02\0\0\0\x01", "idx file"),
        (b"\0\0\x08\x04" + b"\xff" * 16, r"\d{38,} bytes"),
        (b"\0\0\x08\x02" + bytes(4) + b"\xff" * 4, r"\[0, 4294967295\], got 12"),
    ],
)
def test_what_is_no_idx(content, message):
    refused(message, parse_idx, content, "FILE")


# CIFAR10


def test_cifar10():
    labels, images = np.arange(5, dtype=np.uint8), RNG.integers(0, 256, (5, 3, 32, 32), np.uint8)
    content = np.concatenate([labels[:, None], images.reshape(5, -1)], 1).tobytes()
    got = parse_cifar10(content, "")
    np.testing.assert_array_equal(got[0], images)
    np.testing.assert_array_equal(got[1], labels)
    refused("3073 bytes, got 0", parse_cifar10, b"", "FILE")
    refused("3073 bytes, got 15364", parse_cifar10, content[:-1], "FILE")
    refused("3073 bytes, got 15366", parse_cifar10, content + b"\0", "FILE")
    wrong = content[:3073] + b"\x0a" + content[3074:]
    refused("got 10 in record 1", parse_cifar10, wrong, "FILE")


# NumPy


def npy_bytes(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def npy_header(text, data=bytes(24), version=1):
    text = text.encode("latin-1")
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize(
    "array",
    [
        *(np.arange(24).reshape(4, 3, 2).astype(dtype) for dtype in ("f8", "f4", "f2", ">f4", "u1", ">i8", "u4", "?")),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 3)),
        np.float32(3),
        np.arange(5),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_npy(tmp_path, array, version):
    array = np.asanyarray(array)
    content = npy_bytes(array, version=version)
    (tmp_path / "x.npy").write_bytes(content)
    for got in (parse_npy(content, "", LIMIT), read_npy(tmp_path / "x.npy", LIMIT)):
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array, strict=True)
    for length in range(0, len(content), 5):
        refused("expected", parse_npy, content[:length], "FILE", LIMIT)
    refused("expected", parse_npy, content + b"\0", "FILE", LIMIT)
    if array.nbytes:
        refused("at most", parse_npy, content, "FILE", array.nbytes - 1)


def test_headers_that_others_write():
    for text in (
        "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
        '{"descr": "<f4", "fortran_order": False, "shape": (2, 3), }   \n',
        "{ 'descr' : '<f4' , 'shape' : ( 2 , 3 , ) , 'fortran_order' : False }",
    ):
        np.testing.assert_array_equal(parse_npy(npy_header(text), "", LIMIT), np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1]), "magic string"),
        (b"", "NumPy file"),
        (npy_bytes(np.array([[1, "a"]], object)), "pickled objects"),
        (npy_bytes(np.zeros(3, [("a", object)])), "pickled objects"),
        (npy_bytes(np.zeros(3, [("a", "f4")])), r"got .*'\|V4'"),
        (npy_bytes(np.array(["a"])), "got .*'<U1'"),
        (npy_bytes(np.zeros(2, complex)), "got .*'<c16'"),
        (npy_bytes(np.zeros(2, "datetime64[s]")), "got .*'<M8"),
        (npy_header("{'descr': '<f16', 'fortran_order': False, 'shape': (2,), }", bytes(32)), "expected"),
        (
            npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }"),
            r"float32\[2, 4\], got 24",
        ),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"), "16 bytes"),
        (npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"), "1048576 bytes"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9999999999999999999), }", b""), "at most"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 0), }", b""), "at most"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }"), "at most"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (6), }"), "shape is not valid"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,,6), }"), "Cannot parse header"),
        (npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 99}6,), }}"), "expected"),
        (npy_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }"), "fortran_order"),
        (npy_header("{'descr': '<f4', 'shape': (2, 3), }"), "correct keys"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}"), "correct keys"),
        (npy_header("{'descr': True, 'fortran_order': False, 'shape': (2, 3), }"), "descr"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': '(2, 3)', }"), "shape is not valid"),
        (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }"), "Python 2"),
        (npy_header("__import__('os').abort()"), "NumPy file"),
        (npy_header("[" * 9000), "NumPy file"),
        (npy_header(""), "NumPy file"),
        (npy_header("{'descr': '<f9', 'fortran_order': False, 'shape': (2, 3), }"), "descr"),
        (
            npy_header("{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }", b"\0\1\0\1\0\2"),
            "booleans",
        ),
        (b"\x93NUMPY\x02\0\xff\xff\xff\xff" + bytes(50), "header .*10000 bytes"),
        (npy_header(" " * 10001), "10000 bytes, got 10001"),
    ],
)
def test_what_is_no_npy(content, message):
    refused(message, parse_npy, content, "FILE", LIMIT)


def npz_bytes(save=np.savez, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.zeros(0), "c/d": np.array(True)}
    content = npz_bytes(save, **arrays)
    (tmp_path / "x.npz").write_bytes(content)
    for got in (parse_npz(content, "", LIMIT), read_npz(tmp_path / "x.npz", LIMIT)):
        assert list(got) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[name], array, strict=True)
    assert parse_npz(npz_bytes(), "", LIMIT) == {}
    shortened(content, parse_npz, LIMIT)
    refused("10000 files and 400 bytes", parse_npz, content, "FILE", 400)
    with pytest.raises(FileNotFoundError, match="got a folder"):
        read_npz(tmp_path, LIMIT)


def test_what_is_no_npz():
    objects = npz_bytes(x=np.array([None]))
    refused("FILE, array 'x': .*pickled objects", parse_npz, objects, "FILE", LIMIT)
    text = zip_bytes({"x.txt": b"1"})
    refused("got .*'x.txt'", parse_npz, text, "FILE", LIMIT)
    refused("'x': .*NumPy file", parse_npz, zip_bytes({"x.npy": pickle.dumps(1)}), "FILE", LIMIT)
    refused("zip archive", parse_npz, npy_bytes(np.zeros(3)), "FILE", LIMIT)


# Zip


def zip_bytes(members, method=zipfile.ZIP_DEFLATED, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method, **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def zipped(content, name="FILE", limit=LIMIT, count=100):
    return dict(zip_members(io.BytesIO(content), name, limit, count))


FILES = {"a.txt": b"alpha" * 100, "d/é.bin": RNG.bytes(300), "d/empty": b"", "z": b"z"}


class Stream(io.RawIOBase):
    """A stream that cannot seek, so zipfile writes sizes after the members."""

    def __init__(self):
        self.content = b""

    def writable(self):
        return True

    def write(self, data):
        self.content += bytes(data)
        return len(data)


def test_zip(tmp_path, monkeypatch):
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        content = zip_bytes(FILES, method)
        assert zipped(content) == FILES
        shortened(content, zipped)
    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("d")
        for name, data in FILES.items():
            with archive.open(name, "w", force_zip64=name == "z") as file:
                file.write(data)
        archive.comment = b"a comment"
    assert zipped(stream.content) == FILES
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)  # 64-bit sizes and offsets everywhere
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    content = zip_bytes(FILES)
    assert b"PK\x06\x06" in content
    assert zipped(content) == FILES
    shortened(content, zipped)
    assert zipped(zip_bytes({})) == {}


def test_members_that_are_not_wanted_are_not_inflated():
    content = zip_bytes({"big": bytes(10 * LIMIT), "a": b"1"})
    refused("1048576 bytes.*'big'", zipped, content)
    assert dict(zip_members(io.BytesIO(content), "FILE", LIMIT, 9, lambda name: name == "a")) == {"a": b"1"}


BAD_NAMES = ["../a", "a/../../b", "/etc/passwd", "C:/a", "a\\..\\b", "..", "a\nb", "a\x1bb", "x" * 1025, "."]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_in_a_zip(name):
    info = zipfile.ZipInfo("x")
    info.filename = name
    refused("names inside|name once", zipped, zip_bytes({info: b"1"}))


def entry(content):
    return content.rindex(b"PK\x01\x02")


def patched(content, at, data):
    return content[:at] + data + content[at + len(data) :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: patched(c, entry(c) + 8, b"\1"), "'a.txt'.*encrypted"),
        (lambda c: patched(c, entry(c) + 10, b"\x0c"), "deflate"),
        (lambda c: patched(c, entry(c) + 16, b"\0\0\0\0"), "Bad CRC-32"),
        (lambda c: patched(c, entry(c) + 24, b"\xff\xff\xff\xfe"), "1048576 bytes.*'a.txt'"),
        (lambda c: patched(c, entry(c) + 24, b"\x60\0\0\0"), "Bad CRC-32"),
        (lambda c: patched(c, entry(c) + 24, b"\x60\2\0\0"), "608 bytes.*'a.txt', got 500"),
        (lambda c: patched(c, entry(c) + 38, struct.pack("<I", (stat.S_IFLNK | 0o777) << 16)), "a link"),
        (lambda c: patched(c, entry(c) + 42, b"\1"), "zip archive"),
        (lambda c: patched(c, entry(c) + 46, b"A"), "File name in directory"),
        (lambda c: patched(c, entry(c) + 20, b"\1"), "expected"),
    ],
)
def test_what_is_no_zip(change, message):
    refused(message, zipped, change(zip_bytes({"a.txt": FILES["a.txt"]})))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zips_that_deceive():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("./a", b"2")
    refused("name once.*'a'", zipped, file.getvalue())
    refused("3 files", zipped, zip_bytes(FILES), "FILE", LIMIT, 3)

    # Two entries for the same bytes, a zip bomb that the ratio of a single member does not reveal. Each entry counts.
    content = zip_bytes({"a": b"1" * 99, "b": b"2" * 99})
    end, first, second = content.rindex(b"PK\x05\x06"), content.index(b"PK\x01\x02"), entry(content)
    refused("expected", zipped, content[:second] + content[first:second].replace(b"a", b"b") + content[end:])
    refused("name once", zipped, content[:second] + content[first:second] + content[end:])


def test_a_member_that_inflates_beyond_its_declared_size():
    content = zip_bytes({"a": bytes(2**27)})
    small = patched(content, entry(content) + 24, struct.pack("<I", 100))
    with little_memory(), pytest.raises(BadFile, match="zip archive, got .*damaged"):
        zipped(small)


def test_what_unpacks_to_much_is_refused():
    """The limit is 64 MiB or 200 times the size of the file, whichever is larger."""
    zeros = bytes(2**26 + 1)
    for size, good in ((2**26, True), (2**26 + 1, False)):
        content, limit = gzip.compress(zeros[:size], 1), 2**40
        if good:
            assert len(inflate(content, "FILE", limit)) == size
        else:
            refused("67108864 bytes", inflate, content, "FILE", limit)
            refused("67108864 bytes", zipped, zip_bytes({"a": zeros}), "FILE", limit)
    assert max_unpacked(2**30, 2**40) == 200 * 2**30
    assert max_unpacked(2**30, 2**31) == 2**31
    padded = {"a": zeros, "b": RNG.bytes(2**19)}
    assert zipped(zip_bytes(padded), limit=2**40).keys() == padded.keys()


# Tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tar_bytes(members, form="pax"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=FORMATS[form]) as archive:
        for name, content in members.items():
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1.5 if form == "pax" else 1  # a fraction needs an extended header
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def untarred(content, name="FILE", limit=LIMIT, count=100, gzipped=False):
    file = io.BytesIO(content)
    return dict(tar_members(gzip.GzipFile(fileobj=file) if gzipped else file, name, limit, count))


@pytest.mark.parametrize("form", FORMATS)
def test_tar(form):
    files = {**FILES, "long/" + "n" * 90 + "/" + "m" * 90: b"deep", "block": bytes(512)}
    content = tar_bytes(files, form)
    assert untarred(content) == files
    assert untarred(gzip.compress(content), gzipped=True) == files
    assert untarred(tar_bytes({}, form)) == {}
    stripped = content.rstrip(b"\0")
    for length in range(0, len(stripped), 101):
        refused("expected", untarred, content[:length])
    refused("at the end", untarred, content + b"x")
    refused("at the end", untarred, content + content)
    for at in range(512, len(stripped), 512):  # a damaged header is not the end of the archive
        if content[at + 257 : at + 262] == b"ustar":
            refused("expected", untarred, patched(content, at + 1, b"!"))
    pressed = gzip.compress(content)
    for length in range(0, len(pressed), 101):
        refused("damaged|the end", untarred, pressed[:length], "FILE", LIMIT, 100, True)
    refused("damaged", untarred, pressed + b"x", "FILE", LIMIT, 100, True)
    refused("1000 bytes", untarred, content, "FILE", 1000)
    refused("2 files", untarred, content, "FILE", LIMIT, 2)


def test_a_folder_packed_as_a_whole(tmp_path):
    for name, content in FILES.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(content)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path / "x", ".")
    assert untarred((tmp_path / "x.tar").read_bytes()) == FILES


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name in BAD_NAMES for form in FORMATS if len(name) < 256 or form != "ustar"]
)
def test_names_in_a_tar(name, form):
    refused("names inside|name once", untarred, tar_bytes({name: b"1"}, form))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"S", b"Z"])
def test_what_is_no_file_in_a_tar(kind):
    info = tarfile.TarInfo("a")
    info.type, info.linkname = kind, "/etc/passwd"
    refused("plain files, got 'a'", untarred, tar_bytes({info: b""}, "gnu"))


def resummed(header):
    header = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


TAR = tar_bytes({"a": b"alpha"}, "gnu")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(list(range(9999))), "tar archive"),
        (b"", "tar archive"),
        (patched(TAR, 0, b"b"), "tar archive"),
        (patched(TAR, 148, b"zz"), "tar archive"),
        (resummed(patched(TAR[:512], 124, b"x")) + TAR[512:], "tar archive"),
        (resummed(patched(TAR[:512], 124, b"77777777777\0")) + TAR[512:], "1048576 bytes"),
        (resummed(patched(TAR[:512], 124, b"\x80" + b"\xff" * 11)) + TAR[512:], "1048576 bytes"),
        (resummed(patched(TAR[:512], 124, b"\xff" + b"\xff" * 11)) + TAR[512:], "expected"),  # -1
        (resummed(patched(TAR[:512], 124, b"\xff" + b"\xff" * 9 + b"\xfc\0")) + TAR[512:], "expected"),
        (
            resummed(patched(TAR[:512], 124, b"00003000000\0")) + TAR[512:],
            "unexpected end of data",
        ),
        (resummed(patched(TAR[:512], 0, b"\xff")) + TAR[512:], "names inside"),
        (resummed(patched(TAR[:512], 156, b"L")) + TAR[512:], "expected"),
        (resummed(patched(TAR[:512], 156, b"x")) + TAR[512:], "expected"),
        (TAR[:1024] + TAR[:1024] + bytes(1024), "name once.*'a'"),
        (TAR[:1024], "at the end"),
        (TAR[:1024] + bytes(512), "at the end"),
        (TAR + bytes(2**20), "at the end"),
    ],
)
def test_what_is_no_tar(content, message):
    refused(message, untarred, content)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": "10000000"}, "1048576 bytes"),
        ({"size": "-512"}, "expected"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, "expected"),
        ({"GNU.sparse.size": "9", "GNU.sparse.map": "0,1"}, "a sparse file"),
        ({"path": "../a"}, "names inside"),
        ({"comment": "x" * 2**21}, "too long"),
    ],
)
def test_extended_headers(fields, message):
    info = tarfile.TarInfo("a")
    info.pax_headers = fields
    refused(message, untarred, tar_bytes({info: b"1"}))


def test_a_header_that_the_library_refuses_is_not_the_end(monkeypatch):
    """Newer Pythons refuse a negative size in a header; the archive would then end there without an error."""
    block = tarfile.TarInfo._block  # pyright: ignore[reportAttributeAccessIssue]

    def refusing(self, count):
        if count < 0:
            raise tarfile.InvalidHeaderError("invalid offset")  # pyright: ignore[reportAttributeAccessIssue]
        return block(self, count)

    monkeypatch.setattr(tarfile.TarInfo, "_block", refusing)
    test_extended_headers({"size": "-512"}, "invalid offset")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_tar_header_that_would_fill_the_memory(kind):
    info = tarfile.TarInfo("a")
    info.type, info.size = kind, 2 * HEADROOM
    content = gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(2 * HEADROOM), 1)
    with little_memory(), pytest.raises(BadFile, match="tar archive, got .*damaged"):
        untarred(content, gzipped=True)


def test_global_headers_of_a_tar_do_not_add_up():
    parts = []
    for i in range(90):
        info = tarfile.TarInfo(f"{i}")
        record = f" x{i}=" + "A" * (2**20 - 2000) + "\n"
        record = f"{len(record) + 7}{record}".encode()
        head = tarfile.TarInfo("g")
        head.type, head.size = tarfile.XGLTYPE, len(record)
        parts += [head.tobuf(tarfile.USTAR_FORMAT), record, bytes(-len(record) % 512), info.tobuf(tarfile.USTAR_FORMAT)]
    content = gzip.compress(b"".join([*parts, bytes(1024)]), 1)
    with little_memory():
        assert len(untarred(content, gzipped=True)) == 90


# Archives by suffix


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz", "x.TGZ"])
def test_archives(tmp_path, name):
    gzipped = name.lower().endswith("gz")
    content = zip_bytes(FILES) if name == "x.zip" else tar_bytes(FILES)
    content = gzip.compress(content) if gzipped else content
    (tmp_path / name).write_bytes(content)
    assert dict(archive_members(tmp_path / name, LIMIT, 10)) == FILES
    assert dict(archive_members(tmp_path / name, LIMIT, 10, lambda name: name == "z")) == {"z": b"z"}
    listed = lambda path, largest=None: list(archive_members(path, LIMIT, 10, lambda name: True, largest))
    refused("1048576 bytes.*499.*'a.txt'", listed, tmp_path / name, 499)
    with pytest.raises(FileNotFoundError, match="got none"):
        listed(tmp_path / "none.zip")
    refused("got 'x.rar'", listed, tmp_path / "x.rar")


# Images


def image_bytes(array, form="PNG", mode=None, **options):
    file, image = io.BytesIO(), Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(file, form, **options)
    return file.getvalue()


GRAY, COLOR = RNG.integers(0, 256, (7, 5), np.uint8), RNG.integers(0, 256, (7, 5, 3), np.uint8)


def cut_images(content):
    """Truncated: refused, unless only bytes after the pixels are missing. Additional bytes at the end are ignored."""
    whole = parse_image(content, "")
    np.testing.assert_array_equal(parse_image(content + b"more", ""), whole)
    shortened(content[:-9], parse_image)
    for length in range(len(content) - 9, len(content)):
        try:
            np.testing.assert_array_equal(parse_image(content[:length], "FILE"), whole)
        except BadFile:
            continue


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP"])
def test_images(tmp_path, form):
    for array, channels in ((GRAY, 1), (COLOR, 3)):
        content = image_bytes(array, form)
        (tmp_path / "x").write_bytes(content)
        expected = np.asarray(Image.open(io.BytesIO(content)))
        expected = expected[None] if channels == 1 else expected.transpose(2, 0, 1)
        for got in (parse_image(content, ""), read_image(tmp_path / "x")):
            np.testing.assert_array_equal(got, expected)
            assert got.shape == (channels, 7, 5)
        if form != "JPEG":
            np.testing.assert_array_equal(expected, array.reshape(7, 5, channels).transpose(2, 0, 1))
        refused("34 pixels, got 5 × 7", parse_image, content, "FILE", 34)
        cut_images(content)


def test_progressive_jpegs_and_interlaced_pngs():
    smooth = np.add.outer(np.arange(64), np.arange(48)).astype(np.uint8)
    content = image_bytes(smooth, "JPEG", progressive=True, quality=95)
    assert content.count(b"\xff\xda") > 1
    assert np.abs(parse_image(content, "").astype(int) - smooth).max() < 8
    cut_images(content)


def test_modes_of_images():
    alpha = np.dstack([COLOR, np.full((7, 5), 255, np.uint8)])
    alpha[0, 0] = 9, 9, 9, 0
    got = parse_image(image_bytes(alpha), "")
    np.testing.assert_array_equal(got[:, 0, 0], 255)  # transparent pixels become white
    np.testing.assert_array_equal(got[:, 1:], COLOR.transpose(2, 0, 1)[:, 1:])
    gray_alpha = np.dstack([GRAY, np.zeros((7, 5), np.uint8)])
    np.testing.assert_array_equal(parse_image(image_bytes(gray_alpha), ""), np.full((1, 7, 5), 255))
    assert parse_image(image_bytes(GRAY, mode="1"), "").shape == (1, 7, 5)
    assert parse_image(image_bytes(COLOR, mode="P"), "").shape == (3, 7, 5)
    assert parse_image(image_bytes(COLOR, "JPEG", mode="CMYK"), "").shape == (3, 7, 5)
    assert decode_image(image_bytes(GRAY), "").mode == "L"
    refused("8 bits.*got 16", parse_image, image_bytes(GRAY.astype(np.uint16)), "FILE")
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90°
    content = image_bytes(GRAY, exif=exif.tobytes())
    np.testing.assert_array_equal(parse_image(content, "")[0], np.rot90(GRAY, -1))


def png_chunks(*chunks):
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


IHDR = struct.pack(">IIBBBBB", 5, 7, 8, 0, 0, 0, 0)
IDAT = zlib.compress(b"".join(b"\0" + row.tobytes() for row in GRAY))
WIDE = zlib.compress((b"\0" + bytes(6 * 5)) * 7)  # two bytes per channel
IEND = png_chunks((b"IEND", b""))[8:]


def animation():
    file, frames = io.BytesIO(), [Image.fromarray(GRAY), Image.fromarray(255 - GRAY)]
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got b''"),
        (pickle.dumps(1), "PNG, JPEG or BMP"),
        (b"GIF89a" + bytes(20), "got b'GIF89a"),
        (
            png_chunks((b"IHDR", b"\x7f\xff\xff\xff" * 2 + IHDR[8:]), (b"IEND", b"")),
            "got 2147483647 × 2147483647",
        ),
        (
            png_chunks((b"IHDR", bytes(8) + IHDR[8:]), (b"IDAT", IDAT), (b"IEND", b"")),
            "PNG image",
        ),
        (png_chunks((b"IDAT", IDAT), (b"IHDR", IHDR), (b"IEND", b"")), "PNG image"),
        (png_chunks((b"IHDR", IHDR[:12]), (b"IEND", b"")), "PNG image"),
        (png_chunks((b"IHDR", IHDR), (b"IDAT", IDAT[:9]), (b"IEND", b"")), "PNG image"),
        (png_chunks((b"IHDR", IHDR), (b"IEND", b"")), "PNG image"),
        (png_chunks((b"IHDR", IHDR), (b"IDAT", IDAT), (b"IEND", b"")).replace(b"IDAT", b"IDAX"), "PNG"),
        (
            png_chunks((b"IHDR", IHDR), (b"IDAT", IDAT[:-1] + b"\0"), (b"IEND", b""))[:-20] + bytes(8) + IEND,
            "PNG image",
        ),
        (
            png_chunks((b"IHDR", IHDR[:8] + b"\x10\2" + IHDR[10:]), (b"IDAT", WIDE), (b"IEND", b"")),
            "8 bits.*got 16",
        ),
        (image_bytes(GRAY, "JPEG").replace(b"\xff\xc0", b"\xff\xc3"), "JPEG image"),
        (b"\xff\xd8\xff\xd9", "JPEG image"),
        (image_bytes(GRAY, "BMP").replace(b"BM", b"BM\0"), "BMP image"),
        (patched(image_bytes(GRAY, "BMP"), 18, b"\xff\xff\xff\x7f"), "expected"),
        (animation(), "animation"),
    ],
)
def test_what_is_no_image(content, message):
    refused(message, parse_image, content, "FILE")


def test_a_jpeg_of_too_many_scans():
    content = image_bytes(GRAY, "JPEG")
    scan = content[content.index(b"\xff\xda") : -2]
    refused("100 scans", parse_image, content[:-2] + 100 * scan + content[-2:], "FILE")


def test_a_bomb_of_text_in_a_png():
    info = PngImagePlugin.PngInfo()
    info.add_text("x", "y" * 2**22, zip=True)
    content = image_bytes(GRAY, pnginfo=info)
    assert len(content) < 2**14
    refused(r"PNG image(.|\n)*too large", parse_image, content, "FILE")


# Through the functions that users call, in a separate process

USER = """
import sys
from vages.data import load_splits
from vages.files import read_image
from pathlib import Path
for path in map(Path, sys.argv[1:]):
    try:
        print(load_splits(path, 0).train.shape if path.suffix == ".npz" else read_image(path).shape)
    except ValueError as error:
        print(error)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_small_files_take_little_memory_and_libraries_print_nothing(tmp_path):
    """An .npz file of some 100 kB once took ten times its unpacked size, here 960 MB. Pillow warned of metadata."""
    np.savez_compressed(tmp_path / "zeros.npz", np.zeros((96, 2**20), np.uint8))
    np.savez_compressed(tmp_path / "good.npz", np.zeros((32, 2**20), np.uint8))
    late = (b"acTL", bytes(8))  # an animation without frames, after the pixels
    (tmp_path / "x.png").write_bytes(png_chunks((b"IHDR", IHDR), (b"IDAT", IDAT), late, (b"IEND", b"")))
    exif = (
        b"Exif\0\0MM\0*\0\0\0\x08\0\x02\x01\x0f\0\x02\0\0\xff\xff\0\0\xff\xf0\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    )
    (tmp_path / "x.jpg").write_bytes(image_bytes(GRAY, "JPEG", exif=exif))  # rotated, with a text beyond the end
    python2 = npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }")
    (tmp_path / "old.npz").write_bytes(zip_bytes({"x.npy": python2}))
    paths = [tmp_path / name for name in ("zeros.npz", "old.npz", "good.npz", "x.png", "x.jpg")]
    result = subprocess.run([sys.executable, "-c", USER, *paths], capture_output=True, text=True, check=True)
    bad, old, good, image, photo, megabytes = result.stdout.splitlines()
    assert re.search("zeros.npz: .*67108864 bytes", bad)
    assert re.search("old.npz, array 'x': .*NumPy file", old)
    assert good == str((26, 2**20))
    assert image == "(1, 7, 5)"
    assert photo in ("(1, 5, 7)", "(1, 7, 5)")  # Pillow versions differ in how much damaged metadata they read
    assert result.stderr == ""
    assert int(megabytes) < 100 + 32 * 6  # the process, the bytes, four times as much in float32, and a margin


# Folders of images


@pytest.mark.parametrize("name", ["z.gif", "b/z.WebP", "z.tiff"])
def test_other_kinds_of_images_are_not_passed_over(tmp_path, name):
    (tmp_path / "b").mkdir()
    for image in ("a.png", name):
        (tmp_path / image).write_bytes(b"")
    refused(f"{name}: ", image_files, tmp_path, 9)


def test_image_folders(tmp_path):
    folder = tmp_path / "images"
    (folder / "b" / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    names = ["10.png", "9.JPG", "b/1.jpeg", "b/deep/0.bmp"]
    for name in [*names, "notes.txt", ".x.png", ".hidden/x.png", "b/Thumbs.db"]:
        (folder / name).write_bytes(b"")
    (folder / "z.png").symlink_to(folder / "10.png")
    found = [str(path.relative_to(folder)) for path in image_files(folder, 5)]
    assert found == [*names, "z.png"]
    refused("4 images, got more", image_files, folder, 4)

    (tmp_path / "secret.png").write_bytes(b"")
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    refused("out.png: .*link", image_files, folder, 9)
    (folder / "out.png").unlink()
    (folder / "self.png").symlink_to("self.png")
    with pytest.raises(FileNotFoundError, match="self.png: .*got none"):
        read_image(image_files(folder, 9)[4])
    (folder / "self.png").unlink()
    (folder / "loop").symlink_to(folder)
    refused("loop: .*got a link", image_files, folder, 9)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.txt").write_bytes(b"")
    refused("got none and 1", image_files, tmp_path / "none", 9)
    for path, got in ((tmp_path / "secret.png", "a file"), (tmp_path / "nowhere", "none")):
        with pytest.raises(FileNotFoundError, match=f"got {got}"):
            image_files(path, 9)


# JSON


def test_json(tmp_path):
    content = '{"a": [1, 2.5, -1e10, true, null, "é\\ud83d\\ude00"], "b": {"a": {}}}'.encode()
    (tmp_path / "x.json").write_bytes(content)
    expected = {"a": [1, 2.5, -1e10, True, None, "é😀"], "b": {"a": {}}}
    assert parse_json(content, "") == read_json(tmp_path / "x.json", LIMIT) == expected
    refused("9 bytes", read_json, tmp_path / "x.json", 9)
    assert parse_json(b'{"a": ' + b"[" * 62 + b"1" + b"]" * 62 + b"}", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got text that is not JSON in line 1, column 1;"),
        (b"[1]", "got list"),
        (b'"a"', "got str"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"b": {"a": 1, "a": 1}}', "twice"),
        (b'{"a": NaN}', "got NaN"),
        (b'{"a": -Infinity}', "got -Infinity"),
        (b'{"a": 1e999}', "got 1e999"),
        (b'{"a": ' + b"9" * 5000 + b"}", "got a number of 5000 digits"),
        (b'{"a": 1} {}', "not JSON in line 1, column 10"),
        (b'{"a":\n 1', "not JSON in line 2, column 3"),
        (b'{"a": "\xff"}', "not UTF-8 at 7"),
        (b'{"a": "\\ud800"}', "got a text that is not Unicode"),
        (b'{"\\ud800": 1}', "got a text that is not Unicode"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", "nesting too deep"),
        (b"[" * 100_000, "nesting too deep"),
        (b'{"a":' * 100_000, "nesting too deep"),
    ],
)
def test_what_is_no_json_object(content, message):
    refused(message, parse_json, content, "FILE")


def test_no_reader_takes_another_format():
    """Each reader gets the files of the others, empty bytes, zeros and a pickle."""
    parsers = {
        "idx": parse_idx,
        "cifar": parse_cifar10,
        "npy": lambda content, name: parse_npy(content, name, LIMIT),
        "npz": lambda content, name: parse_npz(content, name, LIMIT),
        "zip": zipped,
        "tar": untarred,
        "image": parse_image,
        "json": parse_json,
    }
    contents = {
        "idx": idx_bytes(np.ones((2, 2), np.uint8)),
        "cifar": b"\1" * 3073,
        "npy": npy_bytes(np.ones((2, 2))),
        "npz": npz_bytes(x=np.ones((2, 2))),
        "tar": TAR,
        "image": image_bytes(GRAY),
        "json": b'{"a": 1}',
        "pickle": pickle.dumps({"a": 1}),
        "empty": b"",
        "zeros": bytes(2000),
        "text": b"hello, world\n" * 99,
    }
    for (form, parse), (other, content) in itertools.product(parsers.items(), contents.items()):
        if form == other or (form, other) in (("zip", "npz"), ("tar", "zeros")):
            parse(content, "FILE")
        else:
            refused("expected", parse, content, "FILE")
