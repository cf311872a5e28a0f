"""Pictures of a model during training, at a few steps of a long run, without changing the result."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from small_recipes import parts_of
from vages.app.recipes import as_recipe, example_of
from vages.app.recipes.images_pictures import sketch
from vages.app.report.page.reading import Reader
from vages.app.runs import run_recipe, sketches
from vages.app.runs.sketches import Sketches, sketch_sections
from vages.app.settings import CHECKERBOARD, ImageSettings
from vages.files.images import decode_image
from vages.storage.directory import Directory
from vages.training import RunFolder

GRBM = as_recipe(CHECKERBOARD).with_(steps=16, seeds=1, latents=3, batch=10)


def steps_in(path):
    return sorted(int(one.stem.removeprefix("progress-")) for one in path.glob("progress-*.png"))


def test_a_long_run_is_drawn_on_the_way_and_learns_the_same(tmp_path, monkeypatch):
    recipe, trained = replace(GRBM, evaluate=None, maximize=None, test=None, pictures=lambda trained: {}), {}
    for name, short in (("long", 0.0), ("short", np.inf)):
        monkeypatch.setattr(sketches, "_SHORT", short)
        trained[name] = run_recipe(recipe, tmp_path / name, chunk=2).fitted.state
    assert steps_in(tmp_path / "long") == [2, 4, 8, 16]
    assert steps_in(tmp_path / "short") == []
    for one, other in zip(*map(jax.tree.leaves, trained.values()), strict=True):
        np.testing.assert_array_equal(one, other)
    page = (tmp_path / "long/report.html").read_text()
    places = [page.index(f'alt="The model after {step} iterations"') for step in (2, 4, 8, 16)]
    assert places == sorted(places)
    assert "The figure progress" not in page
    assert "During training" not in (tmp_path / "short/report.html").read_text()


@pytest.mark.parametrize(
    ("first", "each", "done", "drawn"),
    [
        (20.0, 0.01, 0, []),  # compiling is slow, not training
        (1.0, 0.05, 0, [130, 250, 500, 1000]),
        (1.0, 0.05, 300, [500, 1000]),  # a resumed run
        (40.0, 0.0, 990, [1000]),  # the last chunk only
    ],
)
def test_short_runs_are_not_drawn(tmp_path, first, each, done, drawn):
    folder = RunFolder(tmp_path / "run", {})
    look = Sketches(folder, GRBM.with_(steps=1000), example_of((2,)), done)
    steps = range(done + 10, 1001, 10)
    assert [step for i, step in enumerate(steps) if look.is_due(step, first + 10 * i * each)] == drawn
    folder.close()


def test_images_are_drawn_in_a_row():
    settings = ImageSettings(data="digits", network="mlp", width=4, depth=1, latents=0, sampling_steps=2)
    recipe, data = as_recipe(settings), example_of((1, 4, 4))
    model, posterior = parts_of(settings, (1, 4, 4))(jax.random.key(0))
    content = sketch(jax.random.key(1), recipe, model, posterior, data)
    image = decode_image(content, "row")
    assert (image.width, image.height) == (16 * (8 * 5 - 1), 16 * 4)


def test_sketches_of_a_strange_folder_are_named_or_left_out(tmp_path):
    (tmp_path / "progress-7.png").write_bytes(b"no picture")
    (tmp_path / "progress-8.png").symlink_to("/etc/hostname")
    (tmp_path / "progress--1.png").write_bytes(b"")
    reader = Reader(Directory(tmp_path))
    assert sketch_sections(reader) == []
    assert ["progress-7" in reader.problems[0], "progress-8" in reader.problems[1]] == [True, True]
    assert len(reader.problems) == 2
