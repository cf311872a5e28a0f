import io
import itertools
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from errors import refused
from truth import mean_differs
from vages.data import TOYS, Batches, Splits, batches, load_array, load_splits, load_toy, split

SEEDS = st.integers(0, 2**64 - 1)


@st.composite
def orders(draw):
    size = draw(st.integers(1, 40))
    return Batches(size, draw(st.integers(1, size)), draw(SEEDS))


# Batches


@settings(deadline=None, max_examples=50)
@given(orders(), st.integers(0, 3))
def test_every_epoch_visits_every_row_once(order, epoch):
    stream = order.indices(0, (epoch + 1) * order.size).ravel()  # an epoch has batch · size positions or more
    visited = stream[epoch * order.size : (epoch + 1) * order.size]
    assert sorted(visited) == list(range(order.size))


@settings(deadline=None, max_examples=50)
@given(orders(), st.integers(0, 2**40), st.lists(st.integers(0, 12), max_size=6))
def test_chunks_do_not_change_the_order(order, step, chunks):
    """Nor does a new object, nor do earlier calls."""
    ends = np.cumsum([step, *chunks]).tolist()
    pieces = [order.indices(start, stop - start) for start, stop in itertools.pairwise(ends)]
    whole = Batches(order.size, order.batch, order.seed).indices(step, sum(chunks))
    assert whole.shape == (sum(chunks), order.batch)
    assert whole.dtype == np.int32
    np.testing.assert_array_equal(np.concatenate([whole[:0], *pieces]), whole)
    np.testing.assert_array_equal(order.indices(step, sum(chunks)), whole)


def test_iterations_are_consecutive_positions_of_the_stream():
    order = Batches(7, 3, 0)
    epochs = [batches._permutation(7, 0, epoch) for epoch in range(3)]
    np.testing.assert_array_equal(order.indices(1, 5).ravel(), np.concatenate(epochs)[3:18])


def test_epochs_and_seeds_have_orders_of_their_own():
    rows = {tuple(Batches(50, 50, seed).indices(epoch, 1)[0]) for seed in (0, 1, 2**64 - 1) for epoch in range(20)}
    assert len(rows) == 60
    assert tuple(range(50)) not in rows


def test_positions_are_uniform_over_rows():
    """A chi-square test of the first position of 5,000 epochs: false-alarm rate 1e-6."""
    first = Batches(10, 10, 3).indices(0, 5_000)[:, 0]
    assert stats.chisquare(np.bincount(first, minlength=10)).pvalue > 1e-6


def test_chunks_in_a_row_shuffle_each_epoch_once(monkeypatch):
    """Also if each chunk is requested twice."""
    seen, permutation = [], batches._permutation
    monkeypatch.setattr(batches, "_permutation", lambda *args: (seen.append(args[-1]), permutation(*args))[1])
    order = Batches(600, 100, 0)
    for step in range(0, 60, 5):
        order.indices(step, 5)[:] = 0  # the caller owns the returned array; it is not the cache
        order.indices(step, 5)
    assert seen == list(range(10))
    np.testing.assert_array_equal(np.unique(order.indices(54, 6)), np.arange(600))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 0), "size: .*got 0"),
        ((2**31, 1, 0), "size: .*got 2147483648"),
        ((10, 11, 0), "batch: .*got 11"),
        ((10, 0, 0), "batch: .*got 0"),
        ((10, 5, -1), "seed: .*got -1"),
    ],
)
def test_wrong_batches(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Batches(*arguments)


@pytest.mark.parametrize(("step", "steps"), [(-1, 1), (0, -1)])
def test_iterations_count_from_zero(step, steps):
    with refused("indices"):
        Batches(10, 5, 0).indices(step, steps)


# Splits


@settings(deadline=None, max_examples=50)
@given(st.integers(10, 200), st.integers(0, 2**32), st.floats(0.1, 0.4), st.floats(0.1, 0.4))
def test_a_split_loses_no_row(rows, seed, validation, test):
    array = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2, 1)
    splits = split(array, seed, validation, test)
    np.testing.assert_array_equal(np.sort(np.concatenate(splits), axis=0), array)
    assert abs(len(splits.validation) - validation * rows) <= 0.5
    assert abs(len(splits.test) - test * rows) <= 0.5
    for one, other in zip(splits, split(array, seed, validation, test), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_split_shuffles_by_its_seed():
    array = np.arange(100, dtype=np.float32)[:, None]
    one, other = split(array, 0), split(array, 1)
    assert [part.shape for part in one] == [(80, 1), (10, 1), (10, 1)]
    assert not np.array_equal(one.train, array[:80])
    assert not np.array_equal(one.train, other.train)
    assert [len(part) for part in split(array, 0, validation=0.0)] == [90, 0, 10]


@pytest.mark.parametrize("fractions", [(-0.1, 0.1), (0.1, 1.0), (0.5, 0.5), (float("nan"), 0.1)])
def test_wrong_fractions(fractions):
    with pytest.raises(ValueError, match="^split: .*fractions"):
        split(np.zeros((100, 2), np.float32), 0, *fractions)


def test_a_split_needs_rows_of_float32():
    with refused("split", got="4 rows"):
        split(np.zeros((4, 2), np.float32), 0)
    with refused("split", got="2 rows"):
        split(np.zeros((2, 2), np.float32), 0, 0.45, 0.45)
    with refused("split", got="float64[9, 2]"):
        split(np.zeros((9, 2)), 0)


# Toys


def chi_square_p(points, density, bounds, cells, sub, least=25.0):
    """The p-value of counts on a grid of cells² against the density, by the midpoint rule on sub² points per cell.

    Everything outside the bounds, or in cells that expect fewer than `least` points, counts as one more cell.
    """
    grid, area = midpoints(bounds, cells * sub)
    expected = len(points) * (density(grid) * area).reshape(cells, sub, cells, sub).sum((1, 3)).ravel()
    got = np.histogram2d(points[:, 0], points[:, 1], cells, [bounds[:2], bounds[2:]])[0].ravel()
    enough = expected >= least
    rest = len(points) - expected[enough].sum(), len(points) - got[enough].sum()
    if rest[0] < 1e-6 * len(points):  # no additional cell, as the density has no tails
        assert rest[1] == 0
        return stats.chisquare(got[enough], expected[enough] * got[enough].sum() / expected[enough].sum()).pvalue
    return stats.chisquare([*got[enough], rest[1]], [*expected[enough], rest[0]]).pvalue


def midpoints(bounds, n):
    """The centers of n² cells, x slowest, and the area of a cell."""
    x, y = (low + (high - low) * (np.arange(n) + 0.5) / n for low, high in (bounds[:2], bounds[2:]))
    area = (bounds[1] - bounds[0]) * (bounds[3] - bounds[2]) / n**2
    return np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2), area


def board(points):
    """The board of the paper, implemented again."""
    column, row = np.floor(2 * points).T
    return 2.0 * ((column == row) & ((column == 0) | (column == 1)))


def test_the_checkerboard_is_the_papers():
    """A chi-square test of the sampler on a 10 × 10 grid (false-alarm rate 1e-6), and the density on a finer grid."""
    points = load_toy("checkerboard", 1, train=200_000).train
    assert chi_square_p(points, board, (0, 1, 0, 1), cells=10, sub=1) > 1e-6
    log_density = TOYS["checkerboard"].log_density
    assert log_density
    np.testing.assert_array_equal(log_density(points), np.log(2))  # so no model exceeds log 2
    grid, _ = midpoints((-0.5, 1.5, -0.5, 1.5), 40)
    np.testing.assert_allclose(np.exp(log_density(grid)), board(grid), rtol=1e-12)
    assert [len(part) for part in load_toy("checkerboard", 1)] == [60_000, 10_000, 10_000]


@pytest.mark.parametrize("name", [name for name, toy in TOYS.items() if toy.log_density])
def test_densities_are_those_of_the_samples(name):
    """Each density integrates to one on its window. Samples match it in a chi-square test of false-alarm rate 1e-6."""
    log_density, bounds, n = TOYS[name].log_density, TOYS[name].bounds, 600
    assert log_density
    density = lambda points: np.exp(log_density(points))
    grid, area = midpoints(bounds, n)
    assert density(grid).sum() * area == pytest.approx(1, abs=1e-5)
    assert chi_square_p(load_toy(name, 0).train, density, bounds, cells=30, sub=20) > 1e-6


def curve(name):
    """The curve on which a toy's points lie, at equal steps of its parameter, and the noise around it."""
    t = np.linspace(0, np.pi, 4000)
    if name == "two_moons":
        upper = np.stack([np.cos(t) - 0.5, np.sin(t) - 0.25], 1) / 1.5
        return np.concatenate([upper, -upper]), 0.06
    angle = 1.5 * np.pi + 3 * t
    return np.stack([np.cos(angle), np.sin(angle)], 1) * angle[:, None] / (4.5 * np.pi), 0.03


@pytest.mark.parametrize("name", ["two_moons", "swiss_roll"])
def test_points_lie_about_their_curve(name):
    """The mean, the mean squared radius and the distance from the curve; false-alarm rates 1e-6."""
    points = load_toy(name, 0, train=3000, validation=0, test=0).train.astype(np.float64)
    line, std = curve(name)
    assert not mean_differs(points, line.mean(0))
    assert not mean_differs((points**2).sum(1), (line**2).sum(1).mean() + 2 * std**2)
    nearest = np.sqrt(((points[:, None] - line[None, ::4]) ** 2).sum(-1).min(1))
    assert nearest.max() < std * np.sqrt(stats.chi2.isf(1e-6 / len(points), 2))
    assert np.sqrt(np.mean(nearest**2)) == pytest.approx(std, rel=0.15)  # across the curve; smaller near its bends


@pytest.mark.parametrize("name", TOYS)
def test_toys_are_drawn_from_one_generator(name):
    toy, generator = TOYS[name], np.random.default_rng(5)
    splits = load_toy(name, 5, train=300, validation=0, test=200)
    for part, n in zip(splits, (300, 0, 200), strict=True):
        assert part.shape == (n, 2)
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part, toy.sample(generator, n))
    assert not np.array_equal(splits.train, load_toy(name, 6, train=300).train)
    left, right, bottom, top = toy.bounds
    assert np.all((splits.train > [left, bottom]) & (splits.train < [right, top]))
    assert 0.25 < np.sqrt(np.mean(splits.train.var(0))) < 1


def test_wrong_toys():
    with refused("toy", got="'moons'"):
        load_toy("moons", 0)
    with pytest.raises(ValueError, match="^toy: .*validation=-1"):
        load_toy("rings", 0, train=10, validation=-1)


# Your own arrays


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint8", "int64", "bool", ">f4"])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays_round_trip(tmp_path, dtype, suffix):
    array = np.asfortranarray(np.arange(24).reshape(4, 3, 2).astype(dtype))
    path = tmp_path / f"mine{suffix}"
    np.save(path, array) if suffix == ".npy" else np.savez_compressed(path, images=array)
    for given_path in (path, str(path)):
        got = load_array(given_path)
        assert got.dtype == np.dtype("float32")
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, array.astype(np.float32))  # not rescaled


def test_splits_of_a_file(tmp_path):
    rows = {"train": 5, "validation": 3, "test": 2}
    arrays = {name: np.full((n, 2, 2), n, np.uint8) for name, n in rows.items()}
    save(tmp_path, "three.npz", **{name: arrays[name] for name in reversed(rows)})
    splits = load_splits(tmp_path / "three.npz", seed=0)
    for name in Splits._fields:
        np.testing.assert_array_equal(getattr(splits, name), arrays[name].astype(np.float32))

    one = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    np.save(tmp_path / "one.npy", one)
    np.savez(tmp_path / "one.npz", train=one)
    for path in (tmp_path / "one.npy", tmp_path / "one.npz"):
        for got, expected in zip(load_splits(path, 3, 0.2), split(one, 3, 0.2), strict=True):
            np.testing.assert_array_equal(got, expected)


def save(folder, name, **arrays):
    path = folder / name
    np.save(path, arrays["x"]) if name.endswith(".npy") else np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("array", "message"),
    [
        pytest.param(np.array([[1, "a"]], object), "pickled objects", id="objects"),
        pytest.param(np.zeros((3, 2), [("a", object)]), "pickled objects", id="objects in a field"),
        pytest.param(np.array([["a", "b"]]), "got .*'<U1'", id="text"),
        pytest.param(np.zeros((2, 2), "M8[s]"), r"got .*'<M8\[s\]'", id="dates"),
        pytest.param(np.zeros((3, 2), [("a", "f4")]), "got .*dtype", id="fields"),
        pytest.param(np.zeros((1, 1), [(f"field {i}", "f4") for i in range(900)]), "header .*10000 bytes", id="long"),
        pytest.param(np.zeros((3, 2), complex), "got .*'<c16'", id="complex"),
        pytest.param(np.zeros(7), r"got .*\(7,\)", id="one dimension"),
        pytest.param(np.float32(1), r"got .*\(\)", id="a number"),
        pytest.param(np.zeros((0, 3)), r"got .*\(0, 3\)", id="no rows"),
        pytest.param(np.zeros((3, 0)), r"got .*\(3, 0\)", id="no columns"),
        pytest.param(np.diag([0, np.nan]), r"got nan at \(1, 1\)", id="nan"),
        pytest.param(np.full((2, 2), np.inf), r"got inf at \(0, 0\)", id="infinity"),
        pytest.param(np.diag([0, -1e39]), r"got -1e\+39 at \(1, 1\)", id="beyond float32"),
    ],
)
@pytest.mark.parametrize("name", ["mine.npy", "mine.npz"])
def test_arrays_that_are_no_examples(tmp_path, name, array, message):
    path = save(tmp_path, name, x=array)
    for load in (load_array, lambda path: load_splits(path, 0)):
        with pytest.raises(ValueError, match=message) as error:
            load(path)
        check_error(error.value, path)


def check_error(error, path):
    """The error is one line that names the file and ends with advice."""
    text = str(error)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert " expected " in text
    assert text.count("; ") == 1


class Trap:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_nothing_is_unpickled(tmp_path, suffix):
    sprung, path = tmp_path / "sprung", tmp_path / f"trap{suffix}"
    array = np.array([[Trap(sprung)]], object)
    files = []
    np.save(path, array) if suffix == ".npy" else np.savez(path, x=array)
    files.append(path.read_bytes())
    files.append(pickle.dumps(Trap(sprung)))  # a bare pickle with a false suffix
    for content in files:
        path.write_bytes(content)
        for load in (load_array, lambda path: load_splits(path, 0)):
            with pytest.raises(ValueError, match="pickled objects|NumPy file|zip archive") as error:
                load(path)
            check_error(error.value, path)
    assert not sprung.exists()
    pickle.loads(files[1]).close()  # the trap works
    assert sprung.exists()


def contents(suffix, array):
    file = io.BytesIO()
    np.save(file, array) if suffix == ".npy" else np.savez_compressed(file, x=array)
    return file.getvalue()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_files_are_refused_or_read(tmp_path, suffix):
    """Truncated anywhere: an error in one line. One byte changed: the array, or an error. No other exceptions."""
    path, whole = tmp_path / f"mine{suffix}", contents(suffix, np.random.default_rng(0).normal(size=(20, 3)))
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="expected .*, got .*; ") as error:
            load_array(path)
        check_error(error.value, path)
    generator, messages = np.random.default_rng(1), []
    for position in generator.integers(len(whole), size=200):
        damaged = bytearray(whole)
        damaged[position] ^= int(generator.integers(1, 256))
        path.write_bytes(damaged)
        try:
            load_array(path)
        except ValueError as error:
            messages.append(str(error))
    assert messages
    assert all(text.startswith(str(path)) and "\n" not in text for text in messages)


@pytest.mark.parametrize("load", [load_array, lambda path: load_splits(path, 0)])
def test_files_that_are_not_there(tmp_path, load):
    (tmp_path / "folder.npy").mkdir()
    for name, found in (("none.npy", "none"), ("none.csv", "none"), ("folder.npy", "a folder")):
        with pytest.raises(FileNotFoundError, match=f"got {found}") as error:
            load(tmp_path / name)
        check_error(error.value, tmp_path / name)
    for name, ending in (("x.txt", "'.txt'"), ("x", "'no ending'")):
        with pytest.raises(ValueError, match=f"got {ending}") as error:
            load(tmp_path / name)
        check_error(error.value, tmp_path / name)


def test_archives_with_the_wrong_arrays(tmp_path):
    x, y = np.zeros((4, 2)), np.zeros((4, 3))
    path = save(tmp_path, "two.npz", x=x, train=x)
    with pytest.raises(ValueError, match="got 'x', 'train'") as error:
        load_array(path)
    check_error(error.value, path)
    with pytest.raises(ValueError, match="'validation', 'test', got 'x', 'train'") as error:
        load_splits(path, 0)
    check_error(error.value, path)

    path = save(tmp_path, "three.npz", train=x, validation=x, test=y)
    with pytest.raises(ValueError, match="got .*; .*load_splits"):
        load_array(path)
    with pytest.raises(ValueError, match=r"got \[2\] .*\[2\] .*\[3\]") as error:
        load_splits(path, 0)
    check_error(error.value, path)

    path = save(tmp_path, "bad.npz", train=x, validation=x, test=np.full((4, 2), np.nan))
    with pytest.raises(ValueError, match="bad.npz, array 'test': .*got nan"):
        load_splits(path, 0)

    path = save(tmp_path, "few.npz", x=x)
    with pytest.raises(ValueError, match="few.npz: split: .*got 4 rows") as error:
        load_splits(path, 0)
    check_error(error.value, path)

    for name, members, got in (("empty.npz", {}, "got none"), ("text.npz", {"x.txt": "1 2"}, "got the file 'x.txt'")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member, text in members.items():
                archive.writestr(member, text)
        with pytest.raises(ValueError, match=got) as error:
            load_array(tmp_path / name)
        check_error(error.value, tmp_path / name)
