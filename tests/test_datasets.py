"""Image sets in the layouts of their authors, but small; downloads from a server on this computer."""

import gzip
import hashlib
import io
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import scipy.io
from PIL import Image

from errors import refused
from vages.data import (
    IMAGE_SETS,
    TOYS,
    celeba_folder,
    checksums,
    cifar10,
    datasets,
    digits,
    download,
    fetch,
    load_celeba,
    load_cifar10,
    load_digits,
    load_freyface,
    load_images,
    load_mnist,
    load_splits,
    load_test_rows,
    mnist,
)
from vages.data.checksums import Known
from vages.data.decoding import decode_all
from vages.data.download import download as download_file
from vages.data.fetching import SOURCES, Source
from vages.data.own_images import holds_images
from vages.data.splits import Splits
from vages.files import BadFile

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("VAGES_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def one_line(error, *texts):
    assert "\n" not in str(error.value)
    assert str(error.value).count("; ") == 1
    for text in texts:
        assert text in str(error.value)


# The digits in the package


def test_digits():
    images, labels = load_digits()
    assert labels
    assert [part.shape for part in images] == [(1437, 1, 8, 8), (180, 1, 8, 8), (180, 1, 8, 8)]
    assert [part.shape for part in labels] == [(1437,), (180,), (180,)]
    values = np.unique(np.concatenate([part.ravel() for part in images]))
    np.testing.assert_array_equal(values, np.arange(17, dtype=np.float32) / 16)
    counts = np.bincount(np.concatenate(labels))
    np.testing.assert_array_equal(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])  # the counts of UCI
    means = np.stack([images.train[labels.train == digit].mean(0).ravel() for digit in range(10)])
    for part, classes in ((images.validation, labels.validation), (images.test, labels.test)):
        distance = ((part.reshape(-1, 1, 64) - means) ** 2).sum(-1)
        assert np.mean(distance.argmin(1) == classes) > 0.8  # labels belong to their images


def test_digits_of_another_file(monkeypatch):
    monkeypatch.setattr(digits, "_SHA256", "0")
    with pytest.raises(BadFile, match="digits.npz: .*got bdc2") as error:
        load_digits()
    one_line(error)


# MNIST


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def small_mnist(data, monkeypatch):
    monkeypatch.setattr(mnist, "_TRAIN", 12)
    monkeypatch.setattr(mnist, "_TEST", 4)
    monkeypatch.setattr(mnist, "_VALIDATION", 5)
    arrays = {}
    for name, rows in (("train", 12), ("t10k", 4)):
        arrays[f"{name}-images-idx3-ubyte"] = RNG.integers(0, 256, (rows, 28, 28), np.uint8)
        arrays[f"{name}-labels-idx1-ubyte"] = RNG.integers(0, 10, rows, np.uint8)
    for name, array in arrays.items():
        write(data / "mnist" / name, idx(array))
    return arrays


def test_mnist(data, small_mnist):
    pixels, classes = small_mnist["train-images-idx3-ubyte"], small_mnist["train-labels-idx1-ubyte"]
    for _ in range(2):
        images, labels = load_mnist()
        assert labels
        assert [part.shape for part in images] == [(7, 1, 32, 32), (5, 1, 32, 32), (4, 1, 32, 32)]
        both = np.concatenate([images.train, images.validation])
        np.testing.assert_array_equal(both[:, 0, 2:30, 2:30], pixels.astype(np.float32) / 255)
        assert both.sum() == pytest.approx(both[:, :, 2:30, 2:30].sum())
        np.testing.assert_array_equal(labels.train, classes[:7])
        np.testing.assert_array_equal(labels.validation, classes[7:])
        np.testing.assert_array_equal(images.test[:, 0, 2:30, 2:30] * 255, small_mnist["t10k-images-idx3-ubyte"])
        np.testing.assert_array_equal(labels.test, small_mnist["t10k-labels-idx1-ubyte"])
        for path in list((data / "mnist").iterdir()):  # and again from compressed files
            write(path.with_name(f"{path.name}.gz"), gzip.compress(path.read_bytes()))
            path.unlink()


def test_wrong_mnist(data, small_mnist):
    path = data / "mnist" / "train-labels-idx1-ubyte"
    for content, message in (
        (idx(np.full(12, 10, np.uint8)), "got 10 in train"),
        (idx(np.zeros(11, np.uint8)), r"got uint8\[11\]"),
        (idx(np.zeros(12, np.uint8))[:-1], "20 bytes"),
    ):
        write(path, content)
        with pytest.raises(BadFile, match=message) as error:
            load_mnist()
        one_line(error, str(data))
    path.unlink()
    with pytest.raises(FileNotFoundError, match="^MNIST: .*labels-idx1-ubyte") as error:
        load_mnist()
    one_line(error, "'vages data --get mnist'", "VAGES_DATA")


# CIFAR10


def test_cifar10(data, monkeypatch):
    monkeypatch.setattr(cifar10, "_ROWS", 3)
    pixels, classes = RNG.integers(0, 256, (6, 3, 3, 32, 32), np.uint8), RNG.integers(0, 10, (6, 3), np.uint8)
    folder = data / "cifar10" / "cifar-10-batches-bin"
    for i, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        write(folder / name, np.concatenate([classes[i][:, None], pixels[i].reshape(3, -1)], 1).tobytes())
    images, labels = load_cifar10()
    assert labels
    np.testing.assert_array_equal(images.train * 255, pixels[:5].reshape(15, 3, 32, 32))
    np.testing.assert_array_equal(images.test * 255, pixels[5])
    np.testing.assert_array_equal(labels.train, classes[:5].ravel())
    np.testing.assert_array_equal(labels.test, classes[5])
    assert images.validation.shape == (0, 3, 32, 32)
    assert labels.validation.shape == (0,)

    write(folder / "test_batch.bin", bytes(2 * 3073))
    with pytest.raises(BadFile, match="test_batch.bin: .*got 2") as error:
        load_cifar10()
    one_line(error)
    (folder / "test_batch.bin").unlink()
    with pytest.raises(FileNotFoundError, match="^CIFAR10: .*data --get cifar10") as error:
        load_cifar10()
    one_line(error)


# CelebA


def ramp(width, height, scale):
    """An image that is linear in the position, with the same content at any resolution."""
    y, x = np.mgrid[:height, :width]
    place = np.stack([x + 0.5, y + 0.5, x + y + 1]) / scale
    return np.round(place * np.array([1.4, 1.1, 0.6])[:, None, None]).astype(np.uint8).transpose(1, 2, 0)


@pytest.mark.parametrize(("width", "height", "scale"), [(178, 218, 1), (89, 109, 0.5)])
def test_celeba(data, width, height, scale):
    """The middle 140 of 178 pixels are scaled to 64, at any resolution: inside, a ramp keeps its values."""
    folder = data / "celeba" / "img_align_celeba"
    folder.mkdir(parents=True)
    folder.with_name("img_align_half").mkdir()
    assert celeba_folder() == folder  # the first by name
    for i in range(20):
        Image.fromarray(ramp(width, height, scale) // (1 + i % 2)).save(folder / f"{i:06}.png")
    images, labels = load_celeba()
    assert labels is None
    assert [part.shape for part in images] == [(18, 3, 64, 64), (1, 3, 64, 64), (1, 3, 64, 64)]
    place = (np.arange(64) + 0.5) * 140 / 64
    x, y = np.meshgrid(place + 19, place + 39)
    expected = np.stack([1.4 * x, 1.1 * y, 0.6 * (x + y)])
    inside = np.s_[:, 1:-1, 1:-1]
    for part, factor in ((images.train, 1), (images.validation, 1), (images.test, 0.5)):  # numbers 0, 18 and 19
        np.testing.assert_allclose(part[0][inside] * 255, factor * expected[inside], atol=1.5)
    assert load_images("celeba", resize=16).splits.train.shape == (18, 3, 16, 16)


def test_wrong_celeba(data):
    with pytest.raises(FileNotFoundError, match="^CelebA: .*img_align") as error:
        load_celeba()
    one_line(error, str(data))
    folder = data / "celeba" / "img_align_celeba"
    folder.mkdir(parents=True)
    Image.new("RGB", (100, 50)).save(folder / "a.png")
    with pytest.raises(BadFile, match=r"a.png: .*got \(100, 50\)") as error:
        load_celeba()
    one_line(error)
    (folder / "a.png").unlink()
    for part in "ab":
        (folder / part).mkdir()
        Image.new("RGB", (178, 218)).save(folder / part / "1.png")
    with pytest.raises(BadFile, match=r"one image of each name, got two of '1.png'") as error:
        load_celeba()
    one_line(error)


# Own images


def picture(i, mode="RGB", size=(6, 8)):
    """Image i of a set, of constant value 10 i."""
    return Image.new(mode, size, (10 * i,) * len(mode) if mode != "L" else 10 * i)


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def containers(tmp_path, members):
    """The same files in a folder, in archives, and in archives in another order."""
    for name, content in members.items():
        write(tmp_path / "folder" / name, content)
    yield tmp_path / "folder"
    for order in (sorted, lambda names: sorted(names, reverse=True)):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            for name in order(members):
                archive.writestr(name, members[name])
        yield tmp_path / "x.zip"
        with tarfile.open(tmp_path / "x.tar", "w") as archive:
            for name in order(members):
                archive.add(tmp_path / "folder" / name, name)
        yield tmp_path / "x.tar"
        for ending in (".tar.gz", ".tgz"):
            yield write(tmp_path / f"x{ending}", gzip.compress((tmp_path / "x.tar").read_bytes()))


def test_a_folder_and_its_archives_are_the_same(tmp_path):
    members = {f"{'ab'[i % 2]}/{i:02}.png": png(picture(i)) for i in range(20)}
    others = {"readme.txt": b"no image", ".hidden.png": b"no image", "__MACOSX/._x.png": b"no image"}
    others[".ipynb_checkpoints/x.png"] = b"no image"
    first = None
    for path in containers(tmp_path, {**members, **others}):
        images, labels = load_images(str(path), seed=3)
        assert labels is not None
        for part, own in zip(images, labels, strict=True):  # the folders a and b
            np.testing.assert_array_equal(np.round(part[:, 0, 0, 0] * 25.5) % 2, own)
        assert [part.shape for part in images] == [(16, 3, 8, 6), (2, 3, 8, 6), (2, 3, 8, 6)]
        values = np.concatenate(images)[:, :, 0, 0]
        assert sorted(np.round(values[:, 0] * 255)) == [10 * i for i in range(20)]
        first = images if first is None else first
        for part, expected in zip(images, first, strict=True):
            np.testing.assert_array_equal(part, expected)
    assert first
    assert not np.array_equal(first.train, load_images(str(tmp_path / "folder"), seed=4).splits.train)


def test_classes_are_folders_in_the_order_of_their_names(tmp_path):
    def classes(*names):
        shutil.rmtree(tmp_path / "x", ignore_errors=True)
        for i, name in enumerate(names):
            write(tmp_path / "x" / f"{name}.png", png(picture(i)))
        images, labels = load_images(str(tmp_path / "x"))
        first = np.round(np.concatenate(images)[:, 0, 0, 0] * 25.5).astype(int)  # number of the image
        return None if labels is None else dict(zip(first.tolist(), np.concatenate(labels).tolist(), strict=True))

    ten = [f"b/{i}" for i in range(4)] + [f"a/{i}" for i in range(3)] + [f"c/d/{i}" for i in range(3)]
    assert classes(*ten) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0, 7: 2, 8: 2, 9: 2}
    assert classes(*ten, "lonely") is None
    assert classes(*(f"a/{i}" for i in range(10))) is None


def test_gray_and_colored_images(tmp_path):
    for i in range(10):
        write(tmp_path / "gray" / f"{i}.png", png(picture(i, "L")))
        write(tmp_path / "mixed" / f"{i}.png", png(picture(i, "L" if i else "RGB")))
    assert load_images(str(tmp_path / "gray")).splits.train.shape == (8, 1, 8, 6)
    mixed = np.concatenate(load_images(str(tmp_path / "mixed")).splits)
    assert mixed.shape == (10, 3, 8, 6)
    np.testing.assert_array_equal(mixed[:, 0], mixed[:, 2])


def test_resizing_to_a_square(tmp_path):
    for i in range(10):
        wide = Image.new("L", (12 + i % 2, 8), 0)
        wide.paste(200, (2, 0, 10 + i % 2, 8))  # the square in the middle
        write(tmp_path / "x" / f"{i}.png", png(wide))
    with pytest.raises(BadFile, match="x: .*got 12 × 8 and 13 × 8 in '1.png'") as error:
        load_images(str(tmp_path / "x"))
    one_line(error)
    for size in (8, 4):
        images = np.concatenate(load_images(str(tmp_path / "x"), resize=size).splits)
        np.testing.assert_array_equal(np.round(images * 255), np.full((10, 1, size, size), 200))


def test_wrong_folders_and_archives(tmp_path):
    for i in range(4):
        write(tmp_path / "few" / f"{i}.png", png(picture(i)))
    with pytest.raises(ValueError, match="few: split: .*got 4 rows") as error:
        load_images(str(tmp_path / "few"))
    one_line(error)
    write(tmp_path / "few" / "2.png", b"no image")
    with pytest.raises(BadFile, match="2.png: .*got b'no image'") as error:
        load_images(str(tmp_path / "few"))
    one_line(error)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("d/3.png", b"no image")
    with pytest.raises(BadFile, match="bad.zip, member 'd/3.png': expected ") as error:
        load_images(str(tmp_path / "bad.zip"))
    one_line(error)
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("readme.txt", b"no image")
    with pytest.raises(BadFile, match="none.zip: .*got none") as error:
        load_images(str(tmp_path / "none.zip"))
    one_line(error)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("d/3.gif", b"no image")
    with pytest.raises(BadFile, match="d/3.gif: expected .png, .*got another kind of image") as error:
        load_images(str(tmp_path / "other.zip"))
    one_line(error)


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_arrays_of_images(tmp_path, ending):
    pixels = RNG.integers(0, 256, (10, 3, 6, 5), np.uint8)
    path = tmp_path / f"x{ending}"
    variants = {
        "channels first": pixels,
        "channels last": pixels.transpose(0, 2, 3, 1),
        "floats": pixels.astype(np.float64) / 255,
    }
    results = []
    for array in variants.values():
        np.save(path, array) if ending == ".npy" else np.savez(path, images=array)
        results.append(load_images(str(path), seed=1).splits)
        assert [part.shape for part in results[-1]] == [(8, 3, 6, 5), (1, 3, 6, 5), (1, 3, 6, 5)]
        np.testing.assert_allclose(results[-1].train, results[0].train, rtol=1e-6)
    np.testing.assert_array_equal(np.sort(np.concatenate(results[0]).ravel() * 255), np.sort(pixels.ravel()))
    for gray in (pixels[:, 0] > 99, pixels[:, :1]):
        np.save(path, gray) if ending == ".npy" else np.savez(path, images=gray)
        assert load_images(str(path)).splits.train.shape == (8, 1, 6, 5)


def test_labels_of_arrays_of_images(tmp_path):
    pixels = np.broadcast_to(np.arange(10, dtype=np.uint8)[:, None, None], (10, 6, 5))
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(10) % 3)
    images, labels = load_images(tmp_path / "x.npz", seed=1)
    assert labels is not None
    for part, own in zip(images, labels, strict=True):
        np.testing.assert_array_equal(np.round(part[:, 0, 0, 0] * 255) % 3, own)
    three: Any = {name: pixels[: i + 1] for i, name in enumerate(Splits._fields)}
    three |= {f"{name}_labels": np.arange(len(x)) for name, x in three.items()}
    np.savez(tmp_path / "x.npz", **three)
    found = load_images(tmp_path / "x.npz").labels
    assert found is not None
    assert [part.tolist() for part in found] == [[0], [0, 1], [0, 1, 2]]
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(9))
    with pytest.raises(ValueError, match="array 'labels': expected 10 whole numbers from 0, got ") as error:
        load_images(tmp_path / "x.npz")
    one_line(error)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((9, 6, 5), np.uint8, True),
        ((9, 6, 5), np.float32, True),
        ((9, 3, 6, 5), np.float32, True),
        ((9, 6, 5, 1), np.uint8, True),
        ((9, 6, 5, 2), np.uint8, True),
        ((9, 30), np.uint8, False),
        ((9, 2, 3, 6, 5), np.uint8, True),
    ],
)
def test_what_is_taken_for_images(tmp_path, shape, dtype, expected):
    array = np.zeros(shape, dtype)
    np.save(tmp_path / "x.npy", array)
    np.savez_compressed(tmp_path / "x.npz", x=array, labels=np.arange(9))
    assert [holds_images(tmp_path / name) for name in ("x.npy", "x.npz")] == [expected] * 2


def test_a_file_that_is_damaged_or_absent_is_not_taken_for_images(tmp_path):
    np.save(tmp_path / "object.npy", np.array([{}], object), allow_pickle=True)
    for name, content in {"x.npy": b"no array", "x.npz": b"no archive", "empty.npy": b""}.items():
        write(tmp_path / name, content)
    zipfile.ZipFile(tmp_path / "empty.npz", "w").close()
    names = ("object.npy", "x.npy", "x.npz", "empty.npy", "empty.npz", "none.npy", "none.npz")
    assert [name for name in names if holds_images(tmp_path / name)] == []


def test_an_array_for_each_set(tmp_path):
    test, train = np.zeros((2, 4, 4), np.uint8), np.ones((5, 4, 4), np.uint8)
    np.savez(tmp_path / "x.npz", test=test, train=train, validation=np.full((3, 4, 4), 255, np.uint8))
    splits = load_images(str(tmp_path / "x.npz")).splits
    assert [(part.shape, float(part.max() * 255)) for part in splits] == [
        ((5, 1, 4, 4), 1),
        ((3, 1, 4, 4), 255),
        ((2, 1, 4, 4), 0),
    ]
    np.savez(tmp_path / "x.npz", test=test, train=train)
    with pytest.raises(BadFile, match="got 'test', 'train'") as error:
        load_images(str(tmp_path / "x.npz"))
    one_line(error)
    np.savez(tmp_path / "x.npz", test=test, train=train, validation=np.full((3, 5, 4), 255, np.uint8))
    with pytest.raises(BadFile, match=r"got \(1, 4, 4\), \(1, 5, 4\)") as error:
        load_images(str(tmp_path / "x.npz"))
    one_line(error)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((10, 4)), r"got \[10, 4\]"),
        (np.zeros((10, 2, 4, 4), np.uint8), r"got \[10, 2, 4, 4\]"),
        (np.zeros((0, 4, 4), np.uint8), r"got \[0, 4, 4\]"),
        (np.zeros((30, 8, 8, 4), np.uint8), r"1 or 3 channels, got \[30, 8, 8, 4\]; leave the alpha channel out"),
        (np.zeros((30, 4, 8, 8), np.uint8), r"got \[30, 4, 8, 8\]; leave the alpha channel out"),
        (np.zeros((8, 8, 3, 30), np.uint8), r"got \[8, 8, 3, 30\]; move the axis of images to the front"),
        (np.zeros((3, 8, 8, 30), np.uint8), r"got \[3, 8, 8, 30\]; move the axis"),
        (np.zeros((3, 30, 8, 8), np.uint8), r"got \[3, 30, 8, 8\]; move the axis"),
        (np.zeros((8, 8, 3), np.uint8), r"got \[8, 8, 3\]; stack images, or give images of 8 × 3 as \(n, 8, 3, 1\)"),
        (np.zeros((8, 8, 300), np.uint8), r"got \[8, 8, 300\]; move the axis .* as \(n, 8, 300, 1\)"),
        (np.zeros((9, 2, 3, 6, 5)), r"got \[9, 2, 3, 6, 5\]; .*reshape it"),
        (np.eye(4, dtype=np.uint8)[None].repeat(9, 0), "got 1 as the largest, .*; save bool, or multiply by 255"),
        (np.full((10, 4, 4), 1.5), "got 1.5 to 1.5; rescale"),
        (np.full((10, 4, 4), -0.1), "got -0.1 to -0.1; rescale"),
        (np.where(np.arange(16).reshape(1, 4, 4) == 3, np.nan, 0.5), "got nan; clean"),
        (np.where(np.arange(16).reshape(1, 4, 4) == 3, np.inf, 0.5), "got 0.5 to inf"),
        (np.zeros((10, 4, 4), int), "got int64"),
    ],
)
def test_arrays_that_are_no_images(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(BadFile, match=message) as error:
        load_images(str(tmp_path / "x.npy"))
    one_line(error, str(tmp_path / "x.npy"))


@pytest.mark.parametrize("shape", [(20, 8, 300), (8, 8, 3, 1), (9, 3, 3), (9, 4, 4)])
def test_images_of_unusual_shapes(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
    assert load_images(tmp_path / "x.npy").splits.train.shape[1:] == (1, *shape[1:3])


def test_labels_of_another_name_are_told(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((9, 4, 4), np.uint8), y=np.arange(9))
    for load in (load_images, lambda path: load_splits(path, 0), load_test_rows):
        with pytest.raises(BadFile, match="beside 'labels', .*got 'x', 'y'; rename 'y' to 'labels'") as error:
            load(tmp_path / "x.npz")
        one_line(error)


def known_mat(path, monkeypatch, **arrays):
    """A .mat file with the expected checksum of Frey face."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, arrays)
    monkeypatch.setitem(checksums.FILES, "freyface", {"frey_rawface.mat": known(path.read_bytes())})


def test_few_images_wait_in_memory():
    """An archive is read only as fast as its images are decoded."""
    finished, ahead = [], []

    def sources():
        for i in range(300):
            ahead.append(i - len(finished))
            yield i

    def decode(i):
        time.sleep(0.001)
        finished.append(i)
        return f"{i:03}", np.full((1, 2, 2), i % 256, np.uint8)

    pixels = decode_all(sources(), decode, "x")
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], np.arange(300) % 256)
    assert 1 < max(ahead) <= 64


def test_images_by_name(data, monkeypatch):
    assert load_images("digits").splits.train.shape == (1437, 1, 8, 8)
    assert IMAGE_SETS == ("digits", "mnist", "cifar10", "freyface", "celeba")
    faces = RNG.integers(0, 256, (560, 1965), np.uint8)
    path = data / "freyface" / "frey_rawface.mat"
    known_mat(path, monkeypatch, ff=faces)
    splits = load_images("freyface").splits
    assert [part.shape for part in splits] == [(1400, 1, 28, 20), (300, 1, 28, 20), (265, 1, 28, 20)]
    np.testing.assert_array_equal(np.concatenate(splits).reshape(1965, 560).T * 255, faces)
    content = path.read_bytes()
    # The type of an element, a class, an unknown numeric type: scipy crashes on some of these.
    for at, wrong in ((128, 15), (144, 99), (176, 99)):
        path.write_bytes(content[:at] + bytes([wrong]) + content[at + 1 :])
        with pytest.raises(BadFile, match=f"{path}: .*SHA-256"):
            load_freyface()
    path.write_bytes(content + b"\0")
    with pytest.raises(BadFile, match=f"{path}: .*{len(content)} bytes"):
        load_freyface()
    for name in ("celebs", "x.csv"):
        with refused("data", got=f"no file or folder '{name}'") as error:
            load_images(name)
        one_line(error)
    for name, size in (("mnist", 8), ("x.npy", 8), ("celeba", 0)):
        with pytest.raises(ValueError, match=f"^resize: .*got {size}.*{name}") as error:
            load_images(name, resize=size)
        one_line(error)


# Downloads


class Server(ThreadingHTTPServer):
    """A server of `files`: for each path its content, and how many bytes of it to send."""

    files: dict[str, tuple[bytes, int | None]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):  # the name is fixed by the base class
        assert isinstance(self.server, Server)
        if self.path not in self.server.files:
            self.send_error(404)
            return
        content, sent = self.server.files[self.path]
        self.send_response(200)
        if sent is None or sent >= 0:  # if negative, everything is sent, without a length
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if sent is None or sent < 0 else content[:sent])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    server = Server(("127.0.0.1", 0), Handler)
    server.files = {}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def md5(content):
    return f"md5:{hashlib.md5(content).hexdigest()}"


def known(content):
    return Known(len(content), hashlib.sha256(content).hexdigest())


def url(server, path=""):
    return f"http://127.0.0.1:{server.server_port}/{path}"


CONTENT = RNG.bytes(3 * 2**18 + 5)


def test_a_download(tmp_path, server):
    server.files = {"/x": (CONTENT, None), "/untold": (CONTENT, -1)}
    seen = []
    for name, total in (("x", len(CONTENT)), ("untold", None)):
        for digest in (md5(CONTENT), f"sha256:{known(CONTENT).sha256}"):
            path = tmp_path / "new" / name
            download_file(url(server, name), path, len(CONTENT), digest, lambda come, of: seen.append((come, of)))
            assert path.read_bytes() == CONTENT
            assert seen[-1] == (len(CONTENT), total)
            assert [come for come, _ in seen] == sorted(come for come, _ in seen)
            seen.clear()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["untold", "x"]


@pytest.mark.parametrize(
    ("sent", "limit", "digest", "kind", "message"),
    [
        (None, 2**20, md5(b"other"), BadFile, "md5 795f"),
        (None, len(CONTENT) - 1, md5(CONTENT), BadFile, "786436 bytes"),
        (-1, len(CONTENT) - 1, md5(CONTENT), BadFile, "786436 bytes"),
        (
            2**18,
            2**20,
            md5(CONTENT),
            ConnectionError,
            r"\b262144 of 786437 bytes",
        ),
        (0, 2**20, md5(CONTENT), ConnectionError, r"\b0 of 786437 bytes"),
    ],
)
def test_a_download_that_fails_leaves_nothing_new(tmp_path, server, sent, limit, digest, kind, message):
    server.files["/x"] = CONTENT, sent
    path = write(tmp_path / "x", b"as it was")
    with pytest.raises(kind, match=message) as error:
        download_file(url(server, "x"), path, limit, digest)
    assert str(error.value).startswith(url(server, "x"))
    assert "\n" not in str(error.value)
    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_no_download(tmp_path, server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    with pytest.raises(ConnectionError, match=r"\(Not Found\)"):
        download_file(url(server, "none"), tmp_path / "x", 9, md5(b""))
    with pytest.raises(ConnectionError, match=r"\(.*refused\)"):
        download_file(gone, tmp_path / "x", 9, md5(b""))
    assert list(tmp_path.iterdir()) == []


def test_silence(tmp_path, server, monkeypatch):
    monkeypatch.setattr(download, "_TIMEOUT", 0.05)
    monkeypatch.setattr(Handler, "do_GET", lambda self: threading.Event().wait(0.3))
    with pytest.raises(ConnectionError, match=r"\(timed out\)"):
        download_file(url(server, "x"), tmp_path / "x", 9, md5(b""))


# Fetching datasets


def tar_gz(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture
def published(server, monkeypatch):
    """Small datasets on the server, with the layouts and names of the real ones."""
    contents = {
        name: {path: RNG.bytes(99 + i) for i, path in enumerate(files)} for name, files in checksums.FILES.items()
    }
    packed = {
        "cifar10": [tar_gz({**contents["cifar10"], "cifar-10-batches-bin/readme.html": b"hello"})],
        "freyface": list(contents["freyface"].values()),
        "mnist": [gzip.compress(content) for content in contents["mnist"].values()],
    }
    for name, files in contents.items():
        monkeypatch.setitem(checksums.FILES, name, {path: known(content) for path, content in files.items()})
        sources = []
        for source, content in zip(SOURCES[name], packed[name], strict=True):
            path = source.url.rpartition("/")[2]
            server.files[f"/{path}"] = content, None
            sources.append(Source(url(server, path), source.limit, md5(content), source.files))
        monkeypatch.setitem(SOURCES, name, tuple(sources))
    return contents


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", SOURCES)
def test_fetching(data, server, published, name):
    assert datasets_by_name()[name].state == "missing"
    assert fetch(name) == data / name
    assert tree(data / name) == published[name]
    assert datasets_by_name()[name].state == "present"

    victim = data / name / next(iter(published[name]))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    row = datasets_by_name()[name]
    assert row.state == "damaged"
    assert str(victim) in row.detail
    fetch(name)  # damaged files are replaced
    assert tree(data / name) == published[name]
    server.files.clear()
    fetch(name)  # existing files are not downloaded again
    victim.unlink()
    with pytest.raises(ConnectionError, match=f"^{name}: .*Not Found") as error:
        fetch(name)
    one_line(error, victim.name, str(data / name))


def test_compressed_files_count_as_present(data, published):
    fetch("mnist")
    for path in list((data / "mnist").iterdir()):
        write(path.with_name(f"{path.name}.gz"), gzip.compress(path.read_bytes()))
        path.unlink()
    assert datasets_by_name()["mnist"].state == "present"
    write(data / "mnist" / "t10k-labels-idx1-ubyte.gz", gzip.compress(b"other"))
    assert datasets_by_name()["mnist"].state == "damaged"


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_archives_with_other_contents(data, server, published, name):
    """The archive has the right digest, but its content is wrong, as if a publisher had changed both."""
    source = SOURCES[name][0]
    wrong = gzip.compress(b"other") if name == "mnist" else tar_gz(dict.fromkeys(source.files, b"other"))
    for content, message in (
        (wrong, f"{source.files[0]}: .*got 5"),
        (b"no archive", "expected .*, got .*; "),
        (tar_gz({"readme": b"1"}), "99 bytes" if name == "mnist" else "got none"),
        (tar_gz({"../../evil": b"1"}), "expected"),
    ):
        server.files[f"/{source.url.rpartition('/')[2]}"] = content, None
        SOURCES[name] = (source._replace(digest=md5(content)), *SOURCES[name][1:])
        with pytest.raises(BadFile, match=message) as error:
            fetch(name)
        one_line(error)
        assert tree(data) == {}
        assert tree(data.parent) == {}


def test_what_cannot_be_fetched(data):
    with pytest.raises(ValueError, match="^celeba: .*img_align_celeba") as error:
        fetch("celeba")
    one_line(error, str(data))
    with refused("name", got="'digits'") as error:
        fetch("digits")
    one_line(error)


def test_sources_are_safe_and_complete():
    assert set(SOURCES) == set(checksums.FILES)
    for name, sources in SOURCES.items():
        assert sorted(file for source in sources for file in source.files) == sorted(checksums.FILES[name])
        for source in sources:
            assert source.url.startswith("https://")
            kind, digest = source.digest.split(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[kind]


# The catalogue


def datasets_by_name():
    return {row.name: row for row in datasets()}


def test_the_catalogue(data):
    rows = datasets_by_name()
    assert set(rows) == {*TOYS, *IMAGE_SETS}
    for row in rows.values():
        built_in = row.name in TOYS or row.name == "digits"
        assert row.state == ("built in" if built_in else "missing")
        assert row.where == (None if built_in else data / row.name)
        assert bool(row.detail) != built_in
        assert "\n" not in row.detail
    assert rows["digits"].counts == tuple(len(part) for part in load_digits().splits)
    assert rows["digits"].shape == load_digits().splits.train.shape[1:]

    folder = data / "celeba" / "img_align_celeba"
    folder.mkdir(parents=True)
    assert datasets_by_name()["celeba"].state == "damaged"
    for i in range(20):
        write(folder / f"{i}.jpg", b"")
    row = datasets_by_name()["celeba"]
    assert (row.state, row.where, row.counts) == ("present", folder, (18, 1, 1))


def test_data_needs_no_jax():
    code = "import sys, vages.data, vages.files; print([m for m in ('jax', 'scipy', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
