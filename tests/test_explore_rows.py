"""`vages explore` of a run of vectors: the density, draws, held coordinates, walks, and the page over real sockets."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import vages
from compiling import environment
from errors import refused
from vages.app.recipes import Examples, as_recipe
from vages.app.report.page.markup import written
from vages.app.runs import Run
from vages.app.runs.playground import play_key
from vages.app.runs.vectors import CHAINS, DRAWS, STATIONS, Draws, ranges_of, vectors
from vages.app.settings import CHECKERBOARD, POINT_PRESETS
from vages.data import Splits
from vages.posteriors import posterior_means
from vages.samplers import sample

pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")

from test_explore_attacks import Server, opened
from vages.app.explore.plane import BOTTOM, LEFT, RIGHT, TOP, Plane, density_pixels, dots, nearest, ring

BOARD = POINT_PRESETS["board"]
PATTERN = np.asarray([[1.0, -1.0], [0.5, 2.0]], np.float32)
SCRIPT = """
from contextlib import suppress
from test_explore_rows import untrained
from vages.app.explore.app import serve
from vages.app.runs.vectors import vectors
with suppress(KeyboardInterrupt):
    serve(vectors(untrained(3)), browser=False, say=lambda text: print(text, flush=True))
"""


def energy(params, v, h):
    error = v[:2] - PATTERN @ h
    return 2 * jnp.sum(error**2) + jnp.sum((v[2:] - v[:1]) ** 2) - h[0]


def untrained(size, v=None, context=None, energy=energy):
    """A run of an energy of v and two binary latents. The coordinates from 2 on follow coordinate 0."""
    domain = vages.Real(size) if v is None else v

    def build(key, settings, data):
        model = vages.EnergyModel(energy, {"none": jnp.zeros(1)}, v=domain, h=vages.Binary(2))
        return model, vages.BernoulliPosterior.linear(key, domain.size, 2)

    recipe = vages.Recipe(
        data=None,
        build=build,
        learner=vages.Learner(vages.DSM(0.1), learning_rate=1e-3),
        sampler=vages.MCMC("mala", warmup=200),
    )
    rows = np.random.default_rng(0).normal(size=(60, *domain.shape)).astype(np.float32)
    data = Examples(Splits(rows[:40], rows[40:50], rows[50:]), context=context)
    run = Run(Path("run"), recipe, *recipe.make(play_key(0), data), 0, "raw")
    run.__dict__["data"] = data
    return run


@pytest.fixture(scope="module")
def plane():
    return vectors(untrained(2))


@pytest.fixture(scope="module")
def table():
    return vectors(untrained(3))


def test_the_density_sums_the_states_of_h(plane):
    """The sum over the four states in float64, on the same grid, with rows from the bottom up."""
    side = len(plane.density.log)
    assert plane.density.exact
    centers = (np.arange(side) + 0.5) / side
    low, high = plane.ranges.T
    v = np.stack(np.meshgrid(*(low[i] + (high[i] - low[i]) * centers for i in range(2))), axis=-1)
    states = np.asarray([[0, 0], [0, 1], [1, 0], [1, 1]])
    joints = [-2 * np.sum((v - PATTERN @ h) ** 2, axis=-1) + h[0] for h in states]
    np.testing.assert_allclose(plane.density.log, np.logaddexp.reduce(joints, axis=0), rtol=1e-4, atol=1e-3)


def test_rows_are_those_held_out(table):
    np.testing.assert_array_equal(table.rows, table.run.data.splits.test)
    assert (table.source, table.names, table.density) == ("test", ("v[0]", "v[1]", "v[2]"), None)
    alone = vectors(untrained(1, energy=lambda p, v, h: jnp.sum(v**2) + 0.0 * h[0]))
    assert (alone.names, alone.density) == (("v[0]",), None)
    ranges = ranges_of(np.asarray([[0.0, 5.0], [1.0, 5.0]]))
    np.testing.assert_allclose(ranges, [[-0.15, 1.15], [4.85, 5.15]], atol=2e-3)


def test_a_model_with_a_context_is_refused():
    context = {"label": Splits(*(np.zeros(n, np.float32) for n in (40, 10, 10)))}
    with pytest.raises(ValueError, match="run: expected a model without a context"):
        vectors(untrained(2, context=context))


def test_draws_are_those_of_vages_sample(table):
    frames = list(table.drawn(3))
    samples = sample(play_key(3), table.run.model, DRAWS, sampler=table.run.recipe.make_sampler())
    last = frames[-1]
    np.testing.assert_array_equal(last.drawn, samples.v)
    assert samples.trace is not None
    chains = np.asarray(samples.trace["v"])
    assert chains.shape[:2] == (CHAINS, last.steps)
    assert [frame.step for frame in frames] == sorted({frame.step for frame in frames})
    assert [frame.ended for frame in frames] == [False] * (len(frames) - 1) + [True]
    for frame in frames[:-1]:
        np.testing.assert_array_equal(frame.tails, chains[:, max(0, frame.step - 12) : frame.step])
        assert len(frame.drawn) == DRAWS * frame.step // frame.steps
    assert last.summary.startswith("1,000 draws, R̂ at most 1.")


def test_what_was_stopped_shows_nothing_more(table):
    ran = []
    draws = Draws(lambda: ran.append(1) or pytest.fail("it ran"))
    draws.stop()
    assert (list(draws), ran) == ([], [])
    frames = iter(stopped := table.drawn(3))
    next(frames)
    stopped.stop()
    assert list(frames) == []


def test_held_coordinates_stay_and_the_others_follow_them(table):
    """Given v₀, v₂ is N(v₀, 1/2). Each of the 1,000 draws counts as a tenth of an independent one."""
    values, held = np.asarray([3.0, 0.5, -9.0], np.float32), np.asarray([True, True, False])
    drawn = list(table.completed(values, held, 0))[-1].drawn
    np.testing.assert_array_equal(drawn[:, :2], np.broadcast_to(values[:2], (DRAWS, 2)))
    assert abs(drawn[:, 2].mean() - 3) < 5 * np.sqrt(0.5 / 100)
    assert abs(drawn[:, 2].std() - np.sqrt(0.5)) < 0.25
    for wrong, got in ((np.ones(3, bool), "all"), (np.zeros(3, bool), "none")):
        with refused("held", got=got):
            table.completed(values, wrong, 0)


def test_held_states_are_states():
    binary = vectors(untrained(3, vages.Binary(3)))
    assert binary.discrete
    held = np.asarray([True, True, False])
    drawn = list(binary.completed(np.asarray([0.7, 0.2, 0.5]), held, 0))[-1].drawn
    np.testing.assert_array_equal(drawn[:, :2], np.broadcast_to([1, 0], (DRAWS, 2)))
    assert set(np.unique(drawn[:, 2])) <= {0.0, 1.0}

    choice = vectors(untrained(0, vages.Categorical(2, 3), energy=lambda p, v, h: jnp.sum(v) + 0.0 * h[0]))
    assert choice.names[4] == "v[1,1]"
    drawn = list(choice.completed(np.asarray([0.1, 0.9, 0.2, 0, 0, 1.0]), np.arange(6) == 1, 0))[-1].drawn
    np.testing.assert_array_equal(drawn[:, :3], np.broadcast_to([0, 1, 0], (DRAWS, 3)))


def test_a_walk_ends_at_the_latents_of_the_rows(table, monkeypatch):
    seen = {}

    def sampled(key, run, count, **given):
        seen.update(given, count=count)
        return sample(key, run.model, DRAWS, sampler=run.recipe.make_sampler()), []

    monkeypatch.setattr("vages.app.runs.draws.sampled", sampled)
    list(table.walked(0, 1, 0))
    means = posterior_means(table.run.model, table.run.posterior, table.rows[:2])
    assert seen["count"] == STATIONS
    np.testing.assert_array_equal(np.asarray(seen["h"])[[0, -1]], np.rint(means))
    assert set(np.unique(seen["h"])) <= {0.0, 1.0}


def test_a_grbm_is_drawn_independently():
    recipe = as_recipe(CHECKERBOARD)
    model, posterior = recipe.make(play_key(0), recipe.load().of_seed(0))
    run = Run(Path("run"), recipe, model, posterior, 0, "raw")
    run.__dict__["data"] = recipe.load().of_seed(0)
    ready = vectors(run)
    assert ready.density is not None
    frames = list(ready.drawn(0))
    assert frames[-1].summary == "1,000 independent draws"
    assert frames[-1].tails.shape[0] == 0


def test_a_model_of_noise_levels_is_shown_at_the_lowest(monkeypatch):
    monkeypatch.setattr("vages.app.runs.vectors.DRAWS", 20)
    settings = replace(BOARD, width=4, depth=1, latents=2, sigma_data=0.5, center=0.0, detail=0.0)
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    recipe, data = as_recipe(settings), Examples(Splits(rows[:10], rows[10:15], rows[15:]))
    made = eqx.filter_jit(lambda key: recipe.make(key, data))(play_key(0))
    run = Run(Path("run"), recipe, *made, 0, "raw")
    run.__dict__["data"] = data
    assert run.told == "board · a normalized model of points"
    ready = vectors(run)
    assert isinstance(run.model, vages.NoiseConditionalEBLVM)
    assert ready.density is not None
    lowest = vages.InContext(run.model, {"sigma": run.model.sigma_min})
    axes = [np.linspace(low, high, 96) for low, high in ready.ranges]
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)[[5, 5000]]
    there = vages.log_density(play_key(0), lowest, run.posterior, jnp.asarray(grid, jnp.float32), samples=20_000)
    shown = ready.density.log.reshape(-1)[[5, 5000]]
    np.testing.assert_allclose(shown, there.value, atol=0.1)
    *_, last = ready.drawn(1)
    assert last.summary == "20 independent draws"
    np.testing.assert_array_equal(
        last.drawn, sample(play_key(1), run.model, 20, sampler=vages.Heun(run.posterior, steps=40)).v
    )


def test_places_on_the_plane(table):
    ranges = np.asarray([[0.0, 1.0], [0.0, 2.0], [-1.0, 1.0]])
    corners = np.asarray([[0.0, 9.0, -1.0], [1.0, 9.0, 1.0]])
    np.testing.assert_allclose(Plane(ranges, 0, 2).place(corners), [[LEFT, BOTTOM], [RIGHT, TOP]])
    points = Plane(ranges, 0, 2).place(table.rows)
    assert nearest(points, *points[4]) == 4
    heights = Plane(ranges, 0, None).place(corners)[:, 1]
    assert heights[0] != heights[1]
    assert ((heights > TOP) & (heights < BOTTOM)).all()
    assert dots(np.asarray([[LEFT + 0.2, TOP], [LEFT - 1, TOP], [np.nan, TOP]]), "x").count("M") == 1
    assert ring(np.asarray([[LEFT - 1.0, TOP]]), "row") == ""


def test_the_picture_of_the_density():
    log = np.log(np.asarray([[0.5, 1.0], [1e-30, 0.0 + 1e-300]]))
    pixels = density_pixels(log, as_log=False)[..., 3]
    assert pixels.tolist() == [[0, 0], [110, 220]]  # rows from the top
    assert density_pixels(log, as_log=True)[1, 0, 3] == round(220 * (1 - np.log(2) / 10))
    assert not density_pixels(np.full((2, 2), -np.inf), as_log=False)[..., 3].any()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    paths = {"PYTHONPATH": f"{Path(__file__).parent}:{environment().get('PYTHONPATH', '')}"}
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env=environment() | paths,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), (folder / "stderr").read_text()
        yield Server(process, line.split()[0])
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert (folder / "stderr").read_text() == ""


def test_the_page_needs_the_token(server):
    assert server.get("/")[0] == 403
    assert server.get(server.path)[0] == 200


def test_wrong_values_change_nothing(server):
    with opened(server) as page:
        change = "update:modelValue"
        box, boxes = page.find(aria_label="Hold v[1]")
        for wrong in (1, 0, "true", None, [True], {"value": True}):
            page.line.send(page.event(box, boxes[change], wrong))
        slider, sliders = page.find(aria_label="Value of v[0]")
        for wrong in (1e9, -1e9, "0", None, True, [0.0]):
            page.line.send(page.event(slider, sliders[change], wrong))
        select, selects = page.find(aria_label="Coordinate across")
        for wrong in ({"value": 3}, {"value": "v[0]"}, None, 0):
            page.line.send(page.event(select, selects[change], wrong))
        for x in (1e6, "1", None):
            page.line.send(page.mouse(x))
        page.line.send(page.event(slider, sliders[change], 0.125))
        shown = written(float(untrained(3).data.splits.test[0, 1]), 3)  # next to v[1], once it is held
        while '"0.125"' not in (message := str(page.heard.get(timeout=10))):
            assert shown not in message
            assert "1,000,000,000" not in message
        page.line.send(page.event(box, boxes[change], True))
        page.until(shown, 10)


def click(page, label):
    """Click on a button; tabs may have the same name."""
    number, listeners = page.find(tag="q-btn", label=label)
    page.line.send(page.event(number, listeners["click"]))


def test_a_click_draws_and_another_completes(server):
    with opened(server) as page:
        click(page, "Draw")
        page.until("draws, R", 120)
        click(page, "Hold the first half")
        click(page, "Complete")
        page.until("draws, R", 120)
        click(page, "Hold none")
        click(page, "Complete")
        page.until("Hold at least one coordinate", 10)
        page.line.send(page.mouse(250.0, 250.0))
        page.until("test row ", 10)
