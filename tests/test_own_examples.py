"""Examples that a user gives to a run: images of any size, rows of arrays and tables; masks; walks between examples."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import vages
from errors import refused
from small_recipes import parts_of
from vages.app.recipes import Examples, as_recipe
from vages.app.recipes.units import Units
from vages.app.runs import Run, embed, interpolate
from vages.app.runs.completions import chosen_examples, hidden_part
from vages.app.runs.draws import complete, walk
from vages.app.runs.own_examples import own_example, own_examples
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS
from vages.data import Splits, load_splits
from vages.files import BadFile, parse_csv
from vages.posteriors import posterior_means
from vages.samplers import Samples

KEY = jax.random.key(0)
DEEP = replace(
    DEEP_PRESETS["digits-paper"], width=4, depth=1, latents=2, head_width=4, corrector_steps=0, sampling=0.004
)


def run_of(tmp_path, settings, shape, examples):
    """An untrained run with these training examples."""
    model, posterior = parts_of(settings, shape)(KEY)
    run = Run(tmp_path, as_recipe(settings), model, posterior, 1, "raw")
    run.__dict__["data"] = examples
    return run


def split(rows, **how):
    return Examples(Splits(rows, rows[:0], rows[:0]), **how)


@pytest.fixture
def points(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    return run_of(tmp_path, replace(CHECKERBOARD, latents=2), 3, split(rows))


@pytest.fixture
def faces(tmp_path):
    """A GRBM whose vectors are images of 4 rows and 6 columns."""
    rows = np.random.default_rng(0).uniform(size=(20, 24)).astype(np.float32)
    return run_of(tmp_path, replace(CHECKERBOARD, latents=2), 24, split(rows, image=(1, 4, 6)))


@pytest.fixture
def deep(tmp_path):
    images = np.random.default_rng(0).uniform(size=(20, 1, 8, 8)).astype(np.float32)
    return run_of(tmp_path, DEEP, (1, 8, 8), split(images))


def picture(path, pixels):
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return path


def arrays_of(kept):
    (path,) = kept.folder.glob("*.npz")
    with np.load(path) as arrays:
        return dict(arrays)


def test_an_image_is_made_to_fit(tmp_path, deep, faces):
    ramp = np.arange(0, 128, 2)[:64].reshape(8, 8)
    same = own_examples(deep, picture(tmp_path / "same.png", ramp))
    np.testing.assert_array_equal(same.v, (ramp / np.float32(255)).astype(np.float32)[None, None])
    assert same.names == ("same.png",)
    red = np.zeros((16, 40, 3))
    red[:, 12:28, 0] = 255  # the middle square is red, the sides are black
    wide = own_examples(deep, picture(tmp_path / "red.png", red)).v
    np.testing.assert_allclose(wide, 76 / 255, atol=1e-6)  # the gray level that Pillow gives red
    flat = own_examples(faces, picture(tmp_path / "gray.png", np.full((40, 60), 51))).v
    np.testing.assert_allclose(flat, np.full((1, 24), 0.2), atol=1e-6)
    both = tmp_path / "both"
    both.mkdir()
    for name, gray in (("b.png", 255), ("a.png", 0)):
        picture(both / name, np.full((8, 8), gray))
    found = own_examples(deep, both)
    assert found.names == ("a.png", "b.png")
    np.testing.assert_array_equal(found.v.mean(axis=(1, 2, 3)), [0, 1])


def test_rows_of_files(tmp_path, points, deep, faces):
    rows = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "a.npz", h=np.zeros((2, 1)), v=rows)
    (tmp_path / "a.csv").write_text("x,y,z\n0,1,2\n\n3, 4 ,5e0\n")
    for name in ("a.npy", "a.npz", "a.csv"):
        found = own_examples(points, tmp_path / name)
        np.testing.assert_array_equal(found.v, rows.astype(np.float32))
        assert found.v.dtype == np.float32
        assert found.names == (f"{name}:0", f"{name}:1")
        np.testing.assert_array_equal(own_example(points, f"{tmp_path / name}:1").v, found.v[1:])
    np.testing.assert_array_equal(own_example(points, 4).v, points.data.splits.train[4:5])
    np.testing.assert_array_equal(own_example(points, "4").v, points.data.splits.train[4:5])
    np.save(tmp_path / "b.npy", np.full((2, 8, 8), 255, np.uint8))
    np.testing.assert_array_equal(own_examples(deep, tmp_path / "b.npy").v, np.ones((2, 1, 8, 8)))
    for run, shapes in ((deep, ((64,), (1, 8, 8))), (faces, ((24,), (1, 4, 6)))):
        for shape in shapes:  # gray levels, whatever their arrangement
            np.save(tmp_path / "b.npy", np.full((2, *shape), 51, np.uint8))
            np.testing.assert_allclose(own_examples(run, tmp_path / "b.npy").v, 0.2, rtol=1e-6)
    (tmp_path / "train.csv").write_text("\n".join(f"{i},{i}" for i in range(10)))
    assert load_splits(tmp_path / "train.csv", 0).train.shape == (8, 2)


def test_what_does_not_fit_is_refused(tmp_path, points, deep):
    face = picture(tmp_path / "face.png", np.zeros((8, 8)))
    np.save(tmp_path / "wide.npy", np.zeros((2, 4)))
    np.save(tmp_path / "two.npy", np.zeros((2, 3)))
    np.save(tmp_path / "large.npy", np.zeros((2, 9, 9)))
    np.save(tmp_path / "nan.npy", np.full((2, 3), np.nan))
    (tmp_path / "text.txt").write_text("1,2,3")
    for run, what, says in (
        (points, face, r"face.png: .*3 numbers .*not images, got an image"),
        (points, tmp_path / "wide.npy", r"wide.npy: .*\(3,\).*got \(4,\)"),
        (points, tmp_path / "nan.npy", r"nan.npy: .*finite"),
        (points, tmp_path / "text.txt", r"text.txt: .*\.csv.*another file"),
        (points, tmp_path / "none.png", r"none.png|no images"),
        (deep, tmp_path / "large.npy", r"large.npy: .*got \(1, 9, 9\)"),
    ):
        with pytest.raises((ValueError, OSError), match=says) as error:
            own_examples(run, what)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"two.npy: expected one example, got 2; .*two.npy:0"):
        own_example(points, tmp_path / "two.npy")
    with pytest.raises(ValueError, match=r"two.npy: .*0 to 1, got 2"):
        own_example(points, f"{tmp_path / 'two.npy'}:2")
    with refused("between", got="20"):
        own_example(points, 20)
    with refused("count", got="3"):
        chosen_examples(points, tmp_path / "two.npy", 3, 0)


def test_images_of_a_recipe_with_another_range_are_refused(tmp_path, deep):
    recipe = vages.Recipe(
        data=np.zeros((10, 1)),
        build=lambda *_: pytest.fail("not built"),
        learner=vages.Learner(vages.DSM(0.1), learning_rate=1.0),
    )
    own = replace(deep, recipe=recipe)
    own.__dict__["data"] = split(255 * deep.data.splits.train)
    with pytest.raises(ValueError, match=r"face.png: .*own numbers, .*to 25.*got an image file"):
        own_examples(own, picture(tmp_path / "face.png", np.zeros((8, 8))))


def test_images_of_a_recipe_may_be_standardized(tmp_path, deep):
    train = np.asarray(deep.data.splits.train)
    units = Units.of(train)
    recipe = vages.Recipe(
        data=np.zeros((10, 1)),
        build=lambda *_: pytest.fail("not built"),
        learner=vages.Learner(vages.DSM(0.1), learning_rate=1.0),
        units=units,
    )
    own = replace(deep, recipe=recipe)
    own.__dict__["data"] = split(units.standardized(train))
    found = own_examples(own, picture(tmp_path / "face.png", np.full((8, 8), 255)))
    np.testing.assert_allclose(found.v[0], units.standardized(np.ones(units.mean.shape)), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2\n3", "2 numbers .*got 1 in line 2"),
        ("1,2\n3,x", "got 'x' in line 2"),
        ("1,nan", "got 'nan' in line 1"),
        ("1,1_0", "got '1_0' in line 1"),
        ("a,b\n", "got none"),
        ("", "got none"),
        ("a,1\n2,3", "got 'a' in line 1"),
        ("nan,nan\n5,3", "got 'nan' in line 1"),
        ("NA,-Inf\n5,3", "got 'NA' in line 1"),
        (",\n5,3", "got '' in line 1"),
        (",a,b\n0,5,3", "name for each column in line 1, got an empty one.*index=False"),
        ("0,1\n5,3", "first line, got 0 to 1, .*remove the line"),
        ("0,1,2\n0,1,0.5", "first line, got 0 to 2"),
        ("0\n0.5\n1.5", "first line, got 0 to 0"),
        (b"\xff\xfe1", "got other bytes"),
    ],
)
def test_bad_tables_are_refused(text, says):
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(BadFile, match=f"^t.csv: .*{says}"):
        parse_csv(content, "t.csv")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,nan\n5,3", 1),  # a column name may be such a word
        ("Na,K\n5,3", 1),
        ("x,y\n0,1\n5,3", 2),  # a header of names
        ("0,1\n1,0\n1,1", 3),  # zeros and ones
        ("0,1,2\n2,1,0", 2),  # ranks
        ("0\n3\n0.5", 3),
        ("0,1", 1),
        ("1,2\n5,3", 2),
    ],
)
def test_first_lines_of_tables(text, rows):
    assert len(parse_csv(text.encode(), "t.csv")) == rows


def test_masks_of_images_that_are_vectors(tmp_path, faces, points):
    white = np.zeros((4, 6))
    white[1, 2:4] = 255
    mask = str(picture(tmp_path / "mask.png", white))
    np.testing.assert_array_equal(hidden_part(faces, mask), white.reshape(-1) > 0)  # white pixels are filled
    np.testing.assert_array_equal(np.flatnonzero(hidden_part(faces, "0,7")), [0, 7])
    np.testing.assert_array_equal(hidden_part(faces, "half").reshape(4, 6).all(axis=1), [False, False, True, True])
    np.testing.assert_array_equal(hidden_part(points, "half"), [False, True, True])
    with pytest.raises(ValueError, match=r"wrong.png: expected a mask of 4 rows and 6 columns, got .*\(6, 4\); "):
        hidden_part(faces, str(picture(tmp_path / "wrong.png", white.T)))
    with pytest.raises(ValueError, match="^mask: .*entries"):
        hidden_part(points, mask)


@pytest.fixture
def drawn(monkeypatch):
    """Draws that are 7 where nothing is held, instead of chains, which take long to compile."""

    def sample(key, model, n, *, held=None, h=None, sampler=None):
        v = jnp.full((n, *model.v.shape), 7.0)
        v = v if held is None else jnp.where(held.mask, held.known, v)
        return Samples(v, jnp.zeros((n, 2)) if h is None else h, 1.0, {}, {}, 0, 0, draws=n)

    monkeypatch.setattr("vages.app.runs.draws.sample", sample)


@pytest.mark.usefixtures("drawn")
def test_a_grbm_completes_and_walks_between_own_images(tmp_path, faces):
    first, second = (picture(tmp_path / f"{gray}.png", np.full((4, 6), gray)) for gray in (51, 204))
    kept = complete(faces, tmp_path / "completed", file=first, tries=2, mask="left")
    found = arrays_of(kept)
    shown = ~found["hidden"]
    np.testing.assert_allclose(found["v"][..., shown], 0.2, atol=1e-6)
    assert (found["v"][..., ~shown] == 7).all()
    np.testing.assert_array_equal(found["hidden"].reshape(4, 6).all(axis=0), [True] * 3 + [False] * 3)
    assert (kept.result["examples"], kept.result["names"], kept.result["of"]) == (str(first), ["51.png"], "images")
    with Image.open(kept.folder / "inpainting.png") as sheet:
        assert sheet.height // sheet.width >= 2  # four rows of one image
    kept = walk(faces, tmp_path / "walked", between=(first, 3), rows=3)
    assert kept.result["between"] == ["51.png", "training row 3"]
    assert "training_rows" not in kept.result
    ends = arrays_of(kept)["ends"]
    np.testing.assert_allclose(ends, np.stack([np.full(24, 0.2), faces.data.splits.train[3]]), atol=1e-6)
    means = posterior_means(faces.model, faces.posterior, ends)
    np.testing.assert_array_equal(arrays_of(kept)["h"][[0, 2]], np.rint(means))
    kept = embed(faces, tmp_path / "embedded", file=second)
    expected = posterior_means(faces.model, faces.posterior, np.full((1, 24), 0.8, np.float32))
    np.testing.assert_allclose(arrays_of(kept)["given"], expected, rtol=1e-5)
    assert json.loads((kept.folder / "result.json").read_text())["names"] == ["204.png"]


def test_a_deep_run_walks_between_own_images(tmp_path, deep):
    first, second = (picture(tmp_path / f"{gray}.png", np.full((8, 8), gray)) for gray in (0, 255))
    kept = interpolate(deep, tmp_path / "walked", between=(first, second), rows=3, columns=2)
    found = arrays_of(kept)
    ends = posterior_means(
        deep.model, deep.posterior, np.stack([np.zeros((1, 8, 8)), np.ones((1, 8, 8))]).astype(np.float32)
    )
    np.testing.assert_allclose(found["h"], [ends[0], ends.mean(axis=0), ends[1]], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found["along"], [0, 0.5, 1])
    assert found["trajectory"].shape == (2, 3, 1, 8, 8)
    assert jnp.isfinite(found["v"]).all()
    with refused("ratio", got="2.0"):
        interpolate(deep, between=(first, second), ratio=2.0)
