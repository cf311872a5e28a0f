"""Exploring a deep run: images and their latents, live chains, their scheduling, and access control."""

import asyncio
import io
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from errors import refused
from small_recipes import parts_of
from vages.app import cli
from vages.app.explore.worker_pool import CHAINS, Busy, Player, Turns
from vages.app.recipes import Examples, as_recipe
from vages.app.runs import Run
from vages.app.runs.own_examples import fitted_image
from vages.app.runs.playground import TOGETHER, play_key, playground, principal_directions
from vages.app.runs.watching import Chain, Snapshot
from vages.app.settings import DIGITS, IMAGE_PRESETS
from vages.data import load_digits
from vages.domains import Binary, Real
from vages.files import BadFile
from vages.models import EnergyModel
from vages.posteriors import posterior_means
from vages.samplers import Heun, Schedule, program, sample, sample_joint, sample_v

RECIPE = replace(DIGITS, width=8, depth=1, latents=3, head_width=4, sigma_base=0.2, sampling=0.05, corrector_steps=0)
FLOWS = replace(
    IMAGE_PRESETS["digits"],
    width=8,
    depth=1,
    latents=3,
    labels=True,
    classes=10,
    sigma_data=0.4,
    precision="float32",
    sampling_steps=4,
)
SHAPE = (1, 8, 8)
PORT = 4321
HOST = f"127.0.0.1:{PORT}"


def untrained(recipe):
    model, posterior = parts_of(recipe, SHAPE)(jax.random.key(0))
    run = Run(Path("run"), as_recipe(recipe), model, posterior, 0, "raw")
    digits = load_digits()
    run.__dict__["data"] = Examples(digits.splits, digits.labels)
    return run


@pytest.fixture(scope="module")
def ground():
    return playground(untrained(RECIPE))


@pytest.fixture(scope="module")
def flowing():
    return playground(untrained(FLOWS))


@pytest.fixture(scope="module")
def plain():
    return playground(untrained(replace(RECIPE, method="mdsm")))


def encoded(ground, images):
    """The posterior's means, computed without the library's batching."""
    return np.asarray(eqx.filter_jit(jax.vmap(lambda v: ground.run.posterior.network(v)[0]))(images))


def test_the_images_are_the_test_images(ground, plain):
    images = load_digits()
    np.testing.assert_array_equal(ground.images, images.splits.test)
    assert images.labels is not None
    np.testing.assert_array_equal(ground.labels, images.labels.test)
    assert ground.source == "test"
    assert plain.directions is None
    without = untrained(replace(RECIPE, method="mdsm"))
    splits = images.splits._replace(test=images.splits.test[:0])
    without.__dict__["data"] = Examples(splits)
    ready = playground(without)
    assert (ready.source, ready.labels) == ("train", None)
    np.testing.assert_array_equal(ready.images, splits.train)


def test_means_are_the_posteriors(ground):
    image = ground.images[5]
    mean = ground.mean(image)
    np.testing.assert_array_equal(mean, posterior_means(ground.run.model, ground.run.posterior, image[None])[0])
    np.testing.assert_allclose(mean, encoded(ground, image[None])[0], rtol=1e-5, atol=1e-6)


def test_directions_are_those_of_the_covariance():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(500, 2, 2)).astype(np.float32) * [[3, 0.1], [1, 0.5]] + 7
    found = principal_directions(means.astype(np.float32), 3)
    variances, vectors = np.linalg.eigh(np.cov(means.reshape(500, 4).astype(np.float32), rowvar=False))
    flat = found.axes.reshape(3, 4)
    np.testing.assert_allclose(flat @ flat.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(flat * vectors.T[:0:-1], axis=1)), 1, rtol=1e-9)
    np.testing.assert_allclose(found.deviations**2, variances[:0:-1], rtol=1e-9)
    np.testing.assert_allclose(found.shares, variances[:0:-1] / variances.sum(), rtol=1e-9)
    assert (flat[np.arange(3), np.abs(flat).argmax(axis=1)] > 0).all()
    assert found.largest == np.abs(means.astype(np.float32)).max()
    assert principal_directions(means[:1], 3).deviations.tolist() == [0.0]


def test_moves_go_by_deviations(ground):
    train = load_digits().splits.train
    means = encoded(ground, train).astype(np.float64)
    axes, deviations = ground.directions[:2]
    np.testing.assert_allclose(deviations, ((means - means.mean(axis=0)) @ axes.T).std(axis=0, ddof=1), rtol=1e-4)
    h = ground.mean(ground.images[0])
    np.testing.assert_array_equal(ground.moved(h, np.zeros(3)), h)
    there = ground.moved(h, np.asarray([0.0, 2.0, 0.0]))
    assert there.dtype == np.float32
    np.testing.assert_allclose((there - h) @ axes.T, [0, 2 * deviations[1], 0], atol=1e-6)


@pytest.mark.parametrize("length", ["quick", "full"])
def test_a_watched_chain_ends_where_the_sampler_does(ground, length):
    h, schedule = ground.mean(ground.images[0]), ground.schedules[length]
    assert schedule.denoise == RECIPE.sigma_base
    seen = list(ground.given(h, 3, length, count=TOGETHER, frames=8))
    there = sample_v(play_key(3), ground.model, np.tile(h, (TOGETHER, 1)), schedule)
    np.testing.assert_array_equal(seen[-1].v, there.v)
    assert [one.step for one in seen] == sorted({one.step for one in seen})
    assert (seen[0].step, seen[-1].step, seen[-1].steps) == (0, schedule.steps, schedule.steps)
    assert [one.ended for one in seen] == [False] * (len(seen) - 1) + [True]
    assert len(seen) > 8
    assert (seen[0].temperature, seen[-1].temperature) == (100, 0)
    np.testing.assert_array_equal(list(ground.given(h, 3, length, count=TOGETHER, frames=1))[-1].v, there.v)
    assert (list(ground.given(h, 4, length, count=TOGETHER))[-1].v != seen[-1].v).any()


def test_joint_chains_end_where_the_sampler_does(ground, plain):
    for one in (ground, plain):
        there = sample_joint(play_key(1), one.model, TOGETHER, one.schedules["quick"])
        np.testing.assert_array_equal(list(one.joint(1, "quick"))[-1].v, there.v)


def test_known_pixels_stay_and_hidden_ones_are_not_seen(ground, plain):
    image = ground.images[2]
    hidden = np.zeros((8, 8), bool)
    hidden[3:6, 2:] = True
    for one in (ground, plain):
        seen = list(one.completed(image, hidden, 0, "quick"))
        for snapshot in seen:
            np.testing.assert_array_equal(snapshot.v[:, 0, ~hidden], np.tile(image[0, ~hidden], (TOGETHER, 1)))
        assert (seen[-1].v[:, 0, hidden] != image[0, hidden]).all()
        other = np.where(hidden, 1 - image, image)
        np.testing.assert_array_equal(list(one.completed(other, hidden, 0, "quick"))[-1].v, seen[-1].v)
    for wrong in (np.zeros((8, 8), bool), np.ones((8, 8), bool)):
        with refused("mask", got="no"):
            ground.completed(image, wrong, 0, "quick")


def test_noise_conditional_images_are_drawn_by_heuns_method(flowing):
    run, image = flowing.run, flowing.images[2]
    assert {name: one.steps for name, one in flowing.schedules.items()} == {"quick": 2, "full": 4}
    assert "digits" in run.told
    heun, h = Heun(run.posterior, steps=2), flowing.mean(image)
    (seen,) = flowing.joint(1, "quick")
    assert (seen.ended, seen.temperature, seen.diverged.any()) == (True, None, False)
    np.testing.assert_array_equal(seen.v, sample(play_key(1), run.model, TOGETHER, sampler=heun).v)
    (seen,) = flowing.given(h, 1, "quick")
    np.testing.assert_array_equal(seen.v, sample(play_key(1), run.model, 1, h=h[None], sampler=heun).v)
    hidden = np.zeros((8, 8), bool)
    hidden[4:] = True
    (seen,) = flowing.completed(image, hidden, 1, "quick")
    np.testing.assert_array_equal(seen.v[:, :, :4], np.broadcast_to(image[:, :4], (TOGETHER, 1, 4, 8)))
    other = np.where(hidden, 1 - image, image)
    (again,) = flowing.completed(other, hidden, 1, "quick")
    np.testing.assert_array_equal(seen.v, again.v)  # hidden pixels have no influence
    assert (seen.v[0, :, 4:] != image[:, 4:]).any()
    stopped = flowing.joint(1, "quick")
    stopped.stop()
    assert not list(stopped)


def test_both_lengths_share_a_program(ground):
    h = ground.mean(ground.images[0])
    list(ground.given(h, 0, "quick"))
    size = program._advance._cached._cache_size  # pyright: ignore[reportFunctionMemberAccess]
    before = size()
    for length in ("quick", "full"):
        list(ground.given(h + 1, 7, length, frames=5))
    assert size() == before


def test_a_stopped_chain_gives_nothing_more(ground, monkeypatch):
    chain = ground.joint(0, "quick")
    snapshots = iter(chain)
    assert [next(snapshots).step, next(snapshots).step] == [0, 1]
    assert not chain.stopped
    threading.Thread(target=chain.stop).start()
    while not chain.stopped:
        time.sleep(0.001)
    monkeypatch.delattr(program, "_advance")  # there are no further steps
    assert list(snapshots) == []
    assert list(chain) == []


def test_what_diverges_is_marked(ground):
    schedule = replace(ground.schedules["quick"], box=1.5)
    last = list(Chain(play_key(0), ground.model, schedule, TOGETHER))[-1]
    assert last.diverged.any()
    np.testing.assert_array_equal(np.isnan(last.v).all(axis=(1, 2, 3)), last.diverged)


def test_denoising_is_no_step_of_its_own(ground):
    room = len(ground.schedules["full"].moves().drift)
    one = replace(ground.schedules["full"], hot_steps=1, cooling_steps=0, freezing_steps=0)
    seen = list(Chain(play_key(0), ground.model, one, TOGETHER, room=room))
    assert [snapshot.step for snapshot in seen] == [0, 1]


def test_a_chain_is_checked_before_it_runs(ground):
    how = (play_key(0), ground.model, Schedule())
    with refused("h", got=1):
        Chain(*how, 2, h=np.zeros((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"^h: .*\(n, 3\)"):
        Chain(*how, 2, h=np.zeros((2, 4), np.float32))
    with refused("frames", got=0):
        Chain(*how, 2, frames=0)
    discrete = EnergyModel(lambda params, v, h: jnp.sum(v) * jnp.sum(h), None, Binary(4), Real(3))
    with refused("annealed Langevin dynamics", got="Binary(4)", kind=TypeError):
        Chain(play_key(0), discrete, Schedule(), 2)


def file_of(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind)
    return file.getvalue()


def test_pictures_are_fitted():
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 255
    image = fitted_image(file_of(wide), "wide.png", SHAPE)
    assert (image.shape, image.dtype) == (SHAPE, np.float32)
    np.testing.assert_array_equal(image, 1)  # only the middle
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    np.testing.assert_array_equal(fitted_image(file_of(red), "red.png", (3, 4, 8))[:, 0, 0], [1, 0, 0])
    assert fitted_image(file_of(red, "BMP"), "red.bmp", SHAPE).shape == SHAPE
    assert fitted_image(file_of(wide), "wide.png", (3, 4, 4)).shape == (3, 4, 4)
    with pytest.raises(BadFile, match="text.png: expected "):
        fitted_image(b"no picture", "text.png", SHAPE)
    with pytest.raises(BadFile, match="large.png: .*got 5000 × 5000"):
        fitted_image(file_of(np.zeros((5000, 5000), np.uint8)), "large.png", SHAPE)


class Endless(Chain):
    """Endless snapshots until it is stopped, at most a thousand per second."""

    def __init__(self):
        self._stopped = threading.Event()

    def __iter__(self):
        while not self._stopped.wait(0.001):
            yield Snapshot(0, 1, 0.0, np.zeros((1, 1, 1, 1)), np.zeros(1, bool))


def test_chains_take_turns():
    async def visits():
        turns = Turns()
        players = [Player(turns) for _ in range(CHAINS + 1)]
        seen = [0] * len(players)

        def play(i):
            def show(_):
                seen[i] += 1

            return asyncio.create_task(players[i].play(Endless, show))

        async def until(what):
            async with asyncio.timeout(5):
                while not what():
                    await asyncio.sleep(0.001)

        tasks = [play(i) for i in range(CHAINS)]
        await until(lambda: all(seen[:CHAINS]))
        assert turns.taken == CHAINS
        with pytest.raises(Busy, match="2 other pages"):
            await asyncio.wait_for(play(CHAINS), 5)
        assert not players[CHAINS].playing
        again = play(0)  # a page's new chain replaces its old one
        await asyncio.wait_for(tasks[0], 5)
        assert turns.taken == CHAINS
        assert players[0].playing
        players[1].stop()
        await tasks[1]
        assert not players[1].playing
        tasks = [again, play(CHAINS)]
        await until(lambda: seen[CHAINS])
        overtaken, last = play(0), play(0)  # of several simultaneous requests, the last one runs
        await asyncio.gather(again, overtaken)
        count = seen[0]
        await until(lambda: seen[0] > count)
        for player in players:
            player.stop()
        await asyncio.gather(*tasks, last)
        assert turns.taken == 0
        assert not any(player.playing for player in players)
        turns.close()

    asyncio.run(visits())


def test_a_turn_comes_back_after_an_error():
    class Broken(Endless):
        def __iter__(self):
            raise FloatingPointError("broken")
            yield

    async def visit():
        turns = Turns()
        with pytest.raises(FloatingPointError, match="broken"):
            await Player(turns).play(Broken, print)
        assert turns.taken == 0
        turns.close()

    asyncio.run(visit())


@pytest.fixture(scope="module")
def guarded():
    """A client of a server behind the guard. The server answers every request that the guard lets through."""
    pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, WebSocketRoute

    with warnings.catch_warnings(action="ignore"):  # it prefers another HTTP client than NiceGUI installs
        from starlette.testclient import TestClient

    from vages.app.explore.security import Guard

    async def answer(request):
        return PlainTextResponse(f"{len(await request.body())} bytes")

    async def talk(socket):
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    app = Starlette(routes=[Route("/", answer, methods=["GET", "POST", "PUT"]), WebSocketRoute("/socket", talk)])
    with TestClient(Guard(app, PORT), base_url=f"http://{HOST}") as client:
        yield client


def test_the_page_itself_is_answered(guarded):
    plain = guarded.get("/")
    assert (plain.status_code, plain.text) == (200, "0 bytes")
    policy = plain.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    for name in ("127.0.0.1", "localhost", "LocalHost"):
        assert guarded.get("/", headers={"host": f"{name}:{PORT}"}).status_code == 200
    own = {"origin": f"http://{HOST}"}
    assert guarded.post("/", content=b"abc", headers=own).text == "3 bytes"
    assert guarded.get("/", headers={"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}).status_code == 200
    assert guarded.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200
    with guarded.websocket_connect("/socket", headers={"host": HOST, **own}) as socket:
        assert socket.receive_text() == "hello"


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"127.0.0.1.evil:{PORT}", ""]
)
def test_other_hosts_are_refused(guarded, host):
    from starlette.websockets import WebSocketDisconnect

    refused = guarded.get("/", headers={"host": host})
    assert (refused.status_code, refused.text.splitlines()[0][:13]) == (403, "vages: host: ")
    assert "content-security-policy" in refused.headers
    with pytest.raises(WebSocketDisconnect):
        with guarded.websocket_connect("/socket", headers={"host": host, "origin": f"http://{host}"}):
            pass


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", f"https://{HOST}", f"http://127.0.0.1:{PORT + 1}", f"http://localhost:{PORT}"],
)
def test_other_origins_are_refused(guarded, origin):
    from starlette.websockets import WebSocketDisconnect

    for method in ("GET", "POST", "PUT"):
        refused = guarded.request(method, "/", headers={"origin": origin})
        assert (refused.status_code, refused.text[:15]) == (403, "vages: origin: ")
    with pytest.raises(WebSocketDisconnect):
        with guarded.websocket_connect("/socket", headers={"host": HOST, "origin": origin}):
            pass


def test_what_changes_something_names_its_origin(guarded):
    from starlette.websockets import WebSocketDisconnect

    assert guarded.post("/", content=b"abc").status_code == 403
    with pytest.raises(WebSocketDisconnect):
        with guarded.websocket_connect("/socket", headers={"host": HOST}):
            pass
    for site in ("cross-site", "same-site"):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
        assert guarded.get("/", headers=headers).status_code == 403


def test_bodies_are_limited(guarded):
    own = {"origin": f"http://{HOST}"}
    assert guarded.post("/", content=bytes(5_000_000), headers=own).text == "5000000 bytes"
    assert guarded.post("/", content=bytes(5_010_001), headers=own).status_code == 413
    assert guarded.post("/", content=iter([b"abc"]), headers=own).status_code == 411
    assert guarded.post("/", headers=own | {"content-length": "-1"}).status_code == 413


def test_pictures_in_the_page():
    pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")
    import base64

    from vages.app.explore.pictures import png_url, veil

    image = np.asarray([[[0.0, 0.5], [2.0, np.nan]]])
    kind, content = png_url(image).split(",")
    assert kind == "data:image/png;base64"
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert pixels.tolist() == [[[0, 0, 0], [128, 128, 128]], [[255, 255, 255], [255, 0, 255]]]
    hidden = np.asarray([[True, True, False, True], [False] * 4, [False, True, True, True]])
    assert veil(hidden) == '<path class="veil" d="M0 0h2v1h-2zM3 0h1v1h-1zM1 2h3v1h-3z"/>'
    assert veil(np.zeros((2, 2), bool)) == ""


def test_the_port_is_on_this_machine_alone():
    pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")
    from vages.app.explore.app import listening

    with listening(0) as own:
        address, port = own.getsockname()
        assert address == "127.0.0.1"
        with refused("port", got=port, kind=OSError):
            listening(port)
    with refused("port", got=65536):
        listening(65536)


def test_without_the_extra_one_line_says_what_to_do(monkeypatch, tmp_path):
    exploring = import_module("vages.app.cli.exploring")
    monkeypatch.setattr(exploring, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"^explore: .*vages\[explore\]"):
        exploring.explore(tmp_path)


def test_the_command_line_loads_neither_jax_nor_the_server():
    code = "import sys, vages.app.cli.exploring; sys.exit(any(name in sys.modules for name in ('jax', 'nicegui')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert "main" in cli.__all__


def test_rates():
    from vages.app.explore.rates import Bucket

    bucket = Bucket(0.0, rate=8.0, burst=5.0, patience=3)
    assert [bucket.take(1.0, 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert [bucket.take(1.0, 0.125), bucket.take(1.0, 0.125)] == [True, False]
    assert [bucket.take(2.0, 0.25), bucket.take(2.0, 0.375)] == [False, True]
    assert not bucket.exhausted
    assert not bucket.take(1.0, 0.375)
    assert bucket.exhausted
    assert bucket.take(5.0, 10.0)  # a pause resets it
    assert not bucket.exhausted
    steady = Bucket(0.0)
    assert all(steady.take(1.0, i / 500) for i in range(5000))  # the fastest mouse


def test_the_page_of_a_closed_socket_starts_no_chain():
    async def visit():
        turns = Turns()
        player, made = Player(turns), []

        def make():
            made.append(1)
            return Endless()

        playing = asyncio.create_task(player.play(make, lambda _: None))
        async with asyncio.timeout(5):
            while not made:
                await asyncio.sleep(0.001)
            player.leave()
            await playing
            await player.play(make, print)
        assert (len(made), turns.taken, player.playing) == (1, 0, False)
        player.come()
        again = [asyncio.create_task(player.play(make, lambda _: None)) for _ in range(50)]
        await asyncio.sleep(0.05)
        player.stop()
        await asyncio.wait_for(asyncio.gather(*again), 5)
        assert len(made) <= 3  # of several simultaneous requests, only the first and the last are computed
        turns.close()

    asyncio.run(visit())


def test_strokes_leave_no_gap():
    pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")
    from vages.app.explore.inpainting import stroke

    assert np.argwhere(stroke((8, 8), (1.5, 2.5), (5.5, 2.5), 1.0)).tolist() == [[2, x] for x in range(1, 6)]
    rows, columns = np.mgrid[:6, :9] + 0.5
    for begin, end, size in [
        ((-3.0, 1.2), (12.0, 7.9), 3.0),
        ((4.2, 4.2), (4.2, 4.2), 2.5),
        ((-9.0, -6.0), (-9.0, 0.0), 1.0),
    ]:
        expected = np.zeros((6, 9), bool)
        steps = 2 + int(2 * max(abs(b - a) for a, b in zip(begin, end, strict=True)))
        for x, y in np.linspace(begin, end, steps):
            expected |= np.maximum(np.abs(columns - x), np.abs(rows - y)) <= size / 2
        np.testing.assert_array_equal(stroke((6, 9), begin, end, size), expected)


def test_the_window_is_opened_by_a_private_file(monkeypatch):
    """The arguments of a browser's process are visible to all users, so they must not contain the token."""
    pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")
    from vages.app.explore import access

    opened = []
    monkeypatch.setattr(access.webbrowser, "open", opened.append)
    assert len({access.new_token() for _ in range(100)}) == 100
    address = f"http://{HOST}/{access.new_token()}/"
    with access.browser_window(address):
        while not opened:
            time.sleep(0.001)
        file = Path(opened[0].removeprefix("file://"))
        assert opened[0].startswith("file:///")
        assert address not in opened[0]
        assert f"url={address}" in file.read_text()
        assert file.parent.stat().st_mode & 0o077 == 0
    assert not file.parent.exists()
