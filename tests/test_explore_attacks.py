"""Attacks on a server of `vages explore` over real sockets: its token, its limits, and what its page may send."""

import html
import http.client
import json
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from compiling import environment
from raw_websocket import Closed, Refused, WebSocket

pytest.importorskip("nicegui", reason="the extra vages[explore] is not installed")

SERVER = """
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
import jax
from vages.data import load_digits
from vages.app.explore import visitors
from vages.app.explore.app import serve
from vages.app.recipes import Examples, as_recipe, example_of
from vages.app.runs import Run
from vages.app.runs.playground import playground
from vages.app.settings import DIGITS

recipe = replace(DIGITS, width=512, depth=2, latents=3, head_width=4, sampling=10.0, corrector_steps=0)
recipe = as_recipe(recipe)
run = Run(Path("run"), recipe, *recipe.make(jax.random.key(0), example_of((1, 8, 8))), 0, "raw")
run.__dict__["data"] = Examples(*load_digits())
visitors.PAGES = {pages}
with suppress(KeyboardInterrupt):
    serve(playground(run), browser=False, say=lambda text: print(text, flush=True))
"""
MEBIBYTE = 2**20
PAGES = 22  # instead of 32: on a slow machine, the first would be forgotten before so many are opened
pytestmark = pytest.mark.in_order


def found(pattern, text):
    """The first group of the pattern's match."""
    match = re.search(pattern, text, re.DOTALL)
    assert match is not None, f"no {pattern} in {text[:500]}"
    return match[1]


class Server:
    """A server in its own process."""

    def __init__(self, process, address):
        self.process, self.address = process, address
        self.host, self.port, self.path = "127.0.0.1", urlsplit(address).port, urlsplit(address).path

    def get(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def socket(self, path, query, **headers):
        return WebSocket(self.host, self.port, f"{path}_nicegui_ws/socket.io/?{urlencode(query)}", **headers)

    def memory(self):
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return 0
        return 1024 * int(found(r"VmRSS:\s+(\d+)", status.read_text()))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER.replace("{pages}", str(PAGES))],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env=environment(),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), (folder / "stderr").read_text()
        yield Server(process, line.split()[0])
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # it hangs
            process.kill()
            process.communicate()
            raise
    assert (folder / "stderr").read_text() == ""
    assert [path.name for path in folder.iterdir()] == ["stderr"]


class Page:
    """A client that does what a browser does with the page."""

    def __init__(self, server):
        status, text = server.get(server.path)
        assert status == 200, text
        elements = found(r"parseElements\(String\.raw`(.*?)`\)", text)
        self.elements = {int(key): value for key, value in json.loads(html.unescape(elements)).items()}
        query = json.loads(found(r"query: (\{.*?\}),\n", text).replace("'", '"').replace("True", "true"))
        self.id = query["client_id"]
        self.query = {
            "client_id": self.id,
            "next_message_id": query["next_message_id"],
            "implicit_handshake": "true",
            "document_id": str(uuid.uuid4()),
            "tab_id": str(uuid.uuid4()),
            "EIO": "4",
            "transport": "websocket",
        }
        self.line = server.socket(server.path, self.query)
        assert self.line.recv(timeout=5).startswith("0{")
        self.line.send("40")
        assert self.line.recv(timeout=5).startswith("40{")
        self.heard = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        """Answer pings, and queue all other messages for `until`."""
        with suppress(OSError):
            while True:
                try:
                    message = self.line.recv(timeout=60)
                    if message == "2":
                        self.line.send("3")
                    else:
                        self.heard.put(message)
                except Closed as closed:
                    self.heard.put(closed)
                    return

    def close(self, *, politely=True):
        self.line.close(politely=politely)
        self._reader.join(5)

    def find(self, **wanted):
        """The number of the first element with this tag, text or properties, and its listeners by type."""
        for number, element in self.elements.items():
            seen = {**element.get("props", {}), "tag": element.get("tag"), "text": element.get("text"), **element}
            if all(seen.get(name.replace("_", "-"), seen.get(name)) == value for name, value in wanted.items()):
                return number, {event["type"]: event["listener_id"] for event in element.get("events", [])}
        raise AssertionError(wanted)

    def event(self, number, listener, *args, **other):
        body = {"id": number, "client_id": self.id, "listener_id": listener, "args": [json.dumps(a) for a in args]}
        return "42" + json.dumps(["event", body | other])

    def click(self, label):
        number, listeners = self.find(label=label)
        self.line.send(self.event(number, listeners["click"]))

    def mouse(self, x, y=1.0, kind="pointerdown", **other):
        number, listener = next(
            (number, event["listener_id"])
            for number, element in self.elements.items()
            for event in element.get("events", [])
            if event["type"] == "mouse"
        )
        values = {"mouse_event_type": kind, "image_x": x, "image_y": y, "button": 0, "buttons": 1, **other}
        return self.event(number, listener, values)

    def until(self, what, seconds=5.0, only=""):
        """Wait for a message that contains this text; all messages before it start with `only`."""
        began = time.monotonic()
        while True:
            try:
                message = self.heard.get(timeout=max(0.001, began + seconds - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(what) from None
            if isinstance(message, Closed):
                raise message
            assert message.startswith(only), message
            if what in message:
                return

    def answers(self, seconds=3.0):
        """Whether a click on each of two buttons is answered in time."""
        for label, veil in (("Lower half", "M0 4h8"), ("Left half", "M0 0h4")):
            self.click(label)
            self.until(veil, seconds)


@contextmanager
def opened(server):
    page = Page(server)
    try:
        yield page
    finally:
        page.close()


def wait_for_room(server):
    """Wait until all pages of earlier tests that never opened a socket are forgotten."""
    end = time.monotonic() + 20
    while any(server.get(server.path)[0] == 503 for _ in range(4)):
        assert time.monotonic() < end
        time.sleep(4)  # each of these four requests is remembered for some seconds, too


@pytest.fixture(scope="module")
def witness(server):
    """Another page that is open all the time.

    It is opened first, as it would get no turn while earlier pages compile.
    """
    with opened(server) as page:
        page.until("step ", 60)  # it has compiled
        page.click("Stop")
        yield page


ASSET = "_nicegui/{}/static/nicegui.js"
POLL = "_nicegui_ws/socket.io/?EIO=4&transport=polling"


@pytest.mark.parametrize("token", ["/", "/wrong/", "/x" * 3 + "/", "/{short}/", "/{long}/", "/{upper}/"])
def test_nothing_is_answered_without_the_token(server, witness, token):
    import nicegui

    right = server.path.strip("/")
    token = token.format(short=right[:-1], long=right + "x", upper=right.swapcase())
    asset = ASSET.format(nicegui.__version__)
    assert server.get(server.path + asset)[0] == 200
    for path in ("", asset, POLL, "favicon.ico", "_nicegui/client/x/upload/1", "?token=" + right):
        status, text = server.get(token + path)
        assert (status, text.count("\n")) == (403, 1)
        assert text.startswith("vages: token: ")
        assert right not in text
    origin = f"http://{server.host}:{server.port}"
    assert server.get(token + POLL, "POST", b"40", Origin=origin)[0] == 403
    with pytest.raises(Refused) as refused:
        server.socket(token, witness.query)
    assert refused.value.status == 403


def test_the_token_does_not_help_other_sites(server, witness):
    assert server.get(server.path, Host=f"evil.example:{server.port}")[0] == 403
    assert server.get(server.path, Origin="http://evil.example")[0] == 403
    with pytest.raises(Refused):
        server.socket(server.path, witness.query, Origin="http://evil.example")


def test_the_token_is_random_and_the_address_leaks_nothing(server):
    assert len(server.path) == 24
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    connection.request("GET", server.path)
    headers = dict(connection.getresponse().getheaders())
    connection.close()
    assert "set-cookie" not in headers  # cookies of 127.0.0.1 are sent to every port
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["Cache-Control".lower()] == "no-store"
    assert (
        server.path.strip("/") not in Path(f"/proc/{server.process.pid}/cmdline").read_text() * Path("/proc").exists()
    )


def test_only_the_page_and_its_files_are_there(server, witness):
    assert server.get(server.path + "elsewhere")[0] == 404
    assert server.get(server.path + POLL)[0] == 404
    assert server.get(server.path + POLL, "POST", b"40", Origin=f"http://{server.host}:{server.port}")[0] == 404
    assert server.get(server.path, Sec_Purpose="prefetch;prerender")[0] == 503
    for change in ({"transport": "polling"}, {"EIO": "3"}, {"implicit_handshake": "false"}, {"next_message_id": "x"}):
        with pytest.raises(Refused):
            server.socket(server.path, witness.query | change)
    with pytest.raises(Refused):
        server.socket(server.path, witness.query | {"tab_id": "x" * 65})


def test_a_header_without_end_is_refused(server, witness):
    before = server.memory()
    with socket.create_connection((server.host, server.port), timeout=10) as line:
        line.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(OSError):
            for _ in range(64):
                line.sendall(b"X: " + b"x" * MEBIBYTE)
            assert line.recv(100).startswith(b"HTTP/1.1 400")
    assert server.memory() - before < 48 * MEBIBYTE
    witness.answers()


WRONG_NUMBERS = [1e6, -1e6, 1e308, "nan", "1", None, True, [1.0], [[[1.0]]], {"x": 1}, 10**400]


@pytest.mark.parametrize("wrong", WRONG_NUMBERS, ids=[str(number)[:10] for number in WRONG_NUMBERS])
def test_wrong_positions_change_nothing(server, witness, wrong):
    before = server.memory()
    with opened(server) as page:
        page.line.send(page.mouse(2.5, 3.5))
        for values in ({"x": wrong}, {"y": wrong}, {"buttons": wrong}, {"kind": wrong}):
            page.line.send(page.mouse(**{"x": 1.5, "y": 1.5, "kind": "pointermove"} | values))
        witness.answers()
        assert server.memory() - before < 48 * MEBIBYTE
        page.line.send(page.mouse(4.5, 3.5, "pointermove"))
        page.until("M2 3h3v1h-3z")  # as if nothing had been sent in between


def test_nan_and_infinity_are_no_json(server, witness):
    with opened(server) as page:
        right = page.mouse(2.5, 3.5)
        for wrong in ("NaN", "Infinity", "-Infinity", "1e999", "[" * 5000 + "]" * 5000):
            page.line.send(right.replace("2.5", wrong))
        page.line.send(right)
        page.until("M2 3h1v1h-1z")
    witness.answers()


def test_wrong_values_of_controls_change_nothing(server, witness):
    with opened(server) as page:
        change = "update:modelValue"
        slider, listeners = page.find(min=-4.0, max=4.0)
        for wrong in (4.1, -1e300, "0", None, [1], {"value": 1}, True):
            page.line.send(page.event(slider, listeners[change], wrong))
        page.line.send(page.event(slider, listeners[change]))
        page.line.send(page.event(slider, listeners[change], 1.0, 2.0))
        for tag, wrongs in {
            "q-btn-toggle": (2, -1, "full", None, [0], 0.5, True),
            "q-option-group": (2, -1, "hide", None, [0], True),
            "q-tab-panels": ("Elsewhere", None, 1, ["Watch"], "x" * 1000),
            "q-tabs": ("Elsewhere", None, 1, {"name": "Watch"}),
            "nicegui-select": ({"value": 3}, {"value": -1}, {"value": "h1"}, {}, "h1", None, [0]),
            "q-linear-progress": (0.5,),
        }.items():
            number, listeners = page.find(tag=tag)
            listener = listeners["update:value" if tag == "q-linear-progress" else change]
            for wrong in wrongs:
                page.line.send(page.event(number, listener, wrong))
        page.line.send(page.event(slider, page.find(min=-4.0, max=4.0)[1][change], 1.5))
        page.until("+1.5 sd")
    witness.answers()


def test_what_the_page_never_says_is_dropped(server, witness):
    with opened(server) as page:
        number, listeners = page.find(label="Lower half")
        other, theirs = witness.find(label="Clear")
        click = listeners["click"]
        event = {"id": number, "client_id": page.id, "listener_id": click, "args": []}
        for message in (
            "", "4", "9", "2probe", "5", "40", "40/other,", "42", "42{", "42[]", '42["event"]', '42["event",1]', "43[]",
            "44", '451-["event",{"_placeholder":true,"num":0}]', '42/other,["event",{}]', '421["event",{}]',
            *("42" + json.dumps([name, {"client_id": page.id, "level": "error", "message": "x"}])
              for name in ("log", "handshake", "javascript_response", "connect", "disconnect", "unknown", "", 1, None)),
            *("42" + json.dumps(["ack", {"client_id": page.id, "next_message_id": n}]) for n in (-1, "1", None, 1.5)),
            *("42" + json.dumps(["event", event | wrong]) for wrong in (
                {"id": str(number)}, {"id": None}, {"id": True}, {"id": [1]}, {"id": 10**6}, {"listener_id": "x"},
                {"listener_id": None}, {"args": None}, {"args": "x"}, {"args": [None] * 5}, {"client_id": None},
                {"client_id": ["x"]},
                {"client_id": witness.id, "id": other, "listener_id": theirs["click"]},
            )),
        ):  # fmt: skip
            page.line.send(message)
        page.line.send(b"\x04binary")
        while not page.heard.empty():
            page.heard.get()
        page.line.send("40")
        page.click("Lower half")
        page.until("M0 4h8", only="42")
    witness.answers()


@pytest.mark.parametrize("size", [20_000, 10_000_000])
def test_large_messages_close_the_socket(server, witness, size):
    before = server.memory()
    with opened(server) as page:
        with suppress(Closed):
            page.line.send("42" + json.dumps(["event", {"x": "x" * size}]))
        with pytest.raises(Closed) as closed:
            page.until("never")
        assert closed.value.code == 1009
    assert server.memory() - before < 48 * MEBIBYTE
    witness.answers()


def test_floods_are_dropped_and_then_closed(server, witness):
    witness.answers()
    before = server.memory()
    with opened(server) as page:
        page.click("Stop")
        moves = [page.mouse(i % 8 + 0.5, i // 8 % 8 + 0.5, "pointermove") for i in range(10_000)]
        with suppress(Closed):
            for i, message in enumerate(moves):
                page.line.send(message)
                if i % 2000 == 1999:
                    witness.answers()
        with pytest.raises(Closed) as closed:
            page.until("never", 30)
        assert closed.value.code == 1008
    witness.answers()
    assert server.memory() - before < 48 * MEBIBYTE


@pytest.mark.usefixtures("witness")
def test_a_fast_mouse_is_heard(server):
    """All of 500 positions per second, for two seconds, are painted."""
    with opened(server) as page:
        began = time.monotonic()
        for i in range(1000):
            page.line.send(page.mouse(i % 8 + 0.5, i // 8 % 8 + 0.5, "pointerdown"))
            time.sleep(max(0, began + i / 500 - time.monotonic()))
        page.until("".join(f"M0 {y}h8v1h-8z" for y in range(8)))
        page.click("Left half")
        page.until("M0 0h4")


def test_the_number_of_pages_is_limited(server, witness):
    from vages.app.explore import visitors

    with ExitStack() as pages:
        pages.callback(wait_for_room, server)  # in any case, as other tests need pages, too
        for _ in range(15):
            pages.enter_context(opened(server))
        with pytest.raises(Refused):
            Page(server)
        before = server.memory()
        opened_in_all = next(i for i in range(17, 40) if server.get(server.path)[0] == 503)
        assert opened_in_all <= PAGES <= visitors.PAGES <= 32
        assert server.memory() - before < 48 * MEBIBYTE
        witness.answers()
    with opened(server) as page:
        page.answers()


def test_a_chain_ends_when_its_page_goes(server, witness):
    """Two pages take all turns. When one is closed, a third gets its turn within a second."""
    running = "step "
    wait_for_room(server)
    with opened(server) as first, opened(server) as second:
        for page in (first, second):
            page.until(running, 30)
        with opened(server) as third:
            third.until("2 other pages are drawing", 10)
            first.close()
            time.sleep(1)
            third.click("Other noise")
            third.until(running, 2)
            second.close(politely=False)
            time.sleep(1)
            witness.click("Other noise")
            witness.until(running, 2)
            witness.click("Stop")
