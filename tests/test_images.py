import io

import numpy as np
import pytest
from PIL import Image

from vages.app.report import image_grid, sheet_png, tile, trajectory_figure
from vages.app.report.images import png_bytes

RNG = np.random.default_rng(0)


def pixels_of(axes):
    pixels = axes.images[0].get_array()
    assert pixels is not None
    return pixels


def test_images_are_tiled_row_by_row():
    images = RNG.uniform(size=(5, 3, 4, 6))
    sheet = tile(images, columns=3)
    assert sheet.shape == (2 * 4 + 1, 3 * 6 + 2, 3)
    np.testing.assert_array_equal(sheet[5:9, 7:13], np.moveaxis(images[4], 0, -1))
    np.testing.assert_array_equal(sheet[:4, 14:20], np.moveaxis(images[2], 0, -1))
    assert (sheet[4] == 1).all()
    assert (sheet[:, 6] == 1).all()
    assert (sheet[5:, 14:] == 1).all()


def test_gray_images_are_clipped_and_what_is_not_a_number_stands_out():
    images = np.asarray([[[-1.0, 0.25]], [[2.0, np.nan]]])
    expected = np.asarray([[[0, 0, 0], [0.25, 0.25, 0.25], [1, 1, 1], [1, 0, 1]]])
    np.testing.assert_array_equal(tile(images, columns=2, gap=0), expected)
    np.testing.assert_array_equal(tile(images[:, None], columns=2, gap=0), expected)


def test_a_trajectory_has_a_row_a_chain_and_a_column_a_snapshot():
    trajectory = RNG.uniform(size=(4, 2, 3, 5))
    sheet = pixels_of(trajectory_figure(trajectory).axes[0])
    assert sheet.shape == (2 * 3 + 1, 4 * 5 + 3, 3)
    np.testing.assert_array_equal(sheet[4:, 12:17, 0], trajectory[2, 1])


@pytest.mark.parametrize(("shape", "mode"), [((2, 3, 4), "L"), ((2, 3, 3, 4), "RGB")])
def test_a_png_holds_the_pixels_themselves(shape, mode):
    sheet = tile(RNG.integers(0, 256, shape) / 255, columns=2)
    with Image.open(io.BytesIO(png_bytes(sheet, scale=3))) as image:
        assert image.mode == mode
        pixels = np.asarray(image.convert("RGB"))
    expected = np.rint(sheet * 255).astype(np.uint8)
    np.testing.assert_array_equal(pixels[1::3, 1::3], expected)
    np.testing.assert_array_equal(pixels, expected.repeat(3, 0).repeat(3, 1))


@pytest.mark.parametrize(("size", "scale"), [(20, 3), (64, 1), (100, 1)])
def test_a_sheet_of_small_images_is_enlarged(size, scale):
    images = RNG.integers(0, 256, (3, 1, 5, size)) / 255
    with Image.open(io.BytesIO(sheet_png(images, columns=2))) as image:
        pixels = np.asarray(image)
    expected = np.rint(255 * tile(images, 2)[..., 0]).astype(np.uint8)
    np.testing.assert_array_equal(pixels, expected.repeat(scale, 0).repeat(scale, 1))


def test_figures_show_their_sheet_and_labels(tmp_path):
    trajectory = RNG.uniform(size=(3, 2, 4, 6)).astype(np.float32)
    figure = trajectory_figure(trajectory, ["one", "two"], ["1", "2", "end"], title="chains")
    (axes,) = figure.axes
    chains = trajectory.swapaxes(0, 1).reshape(-1, 4, 6)
    np.testing.assert_allclose(pixels_of(axes), tile(chains, columns=3))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]
    np.testing.assert_allclose(axes.get_yticks(), [1.5, 6.5])  # the centers of rows of 4 pixels
    np.testing.assert_allclose(axes.get_xticks(), [2.5, 9.5, 16.5])
    figure.savefig(tmp_path / "a.png")
    assert len(trajectory_figure(trajectory).axes[0].get_yticks()) == 0
    grid = image_grid({"gray": trajectory[0], "color": RNG.uniform(size=(7, 3, 4, 6))}, columns=3)
    assert [axes.get_title() for axes in grid.axes] == ["gray", "color"]
    np.testing.assert_allclose(pixels_of(grid.axes[0]), tile(trajectory[0], columns=3))
    grid.savefig(tmp_path / "b.png")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tile(np.zeros((2, 2, 4, 4)), 3), r"images: .*got \(2, 2, 4, 4\)"),
        (lambda: tile(np.zeros((0, 4, 4)), 3), r"images: .*got \(0, 4, 4\)"),
        (lambda: tile(np.zeros((2, 4, 4)), 0), "columns: .*got 0"),
        (lambda: trajectory_figure(np.zeros((3, 2, 4, 4)), ["a"]), "row_labels: .*got 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, words):
    with pytest.raises(ValueError, match=f"^{words}") as caught:
        call()
    assert "\n" not in str(caught.value)
