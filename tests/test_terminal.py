"""Untrusted text on a terminal: control characters in names, settings and messages have no effect."""

import hashlib
import io
import json
import os
import sys
from contextlib import suppress

import pytest

from small_recipes import with_settings
from test_resume import server  # noqa: F401
from test_stopping import main, reading
from vages.app import cli
from vages.app.cli.exit_status import line_of
from vages.app.output import console, progress
from vages.app.output.progress import ProgressBar
from vages.app.recipes import as_recipe
from vages.app.runs import config_of
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS
from vages.terminal import StandardError, escape_json, printable
from vages.training import RunFolder
from vages.training.checkpoint import write_checkpoint

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\u2066\u200b\u2028[red]b"
HARMLESS = r"a\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\u2066\u200b\u2028[red]b"


def clean(text):
    """Whether the text has no control characters other than newlines."""
    return all(char.isprintable() or char == "\n" for char in text)


def test_what_is_printable_stays_and_the_rest_is_escaped():
    assert printable(HOSTILE) == HARMLESS
    assert printable("naïve σ = ½, 图像 👩 file.npy") == "naïve σ = ½, 图像 👩 file.npy"
    assert printable("one\ntwo\x00\x7f\udcff", keep="\n") == "one\ntwo\\x00\\x7f\\udcff"
    assert printable("x\U000e0041\u206a\u00ady\u3164\ufe0f") == r"x\U000e0041\u206a\xady\u3164\ufe0f"
    assert json.loads(escape_json(json.dumps("\U000e0041\n\x9b", ensure_ascii=False))) == "\U000e0041\n\x9b"
    for number in (*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xD800, 0xFEFF):
        assert printable(chr(number)).isprintable(), hex(number)


def test_errors_and_tracebacks(monkeypatch, capsys, tmp_path):
    for words in (
        ("sample", HOSTILE),
        ("train", "--data", f"{HOSTILE}.npy"),
        ("train", "checkerboard", "--sigma", HOSTILE),
        (HOSTILE,),
    ):
        status, err = main(monkeypatch, capsys, *words)
        assert status == 2
        assert err.count("\n") == 1
        assert clean(err)
        assert "owned" in err
        status, err = main(monkeypatch, capsys, *words, "--debug")
        assert status == 2
        assert clean(err)
        assert "Traceback" in err
    status, err = main(monkeypatch, capsys, "report", os.fsdecode(b"\xff\xfe"))  # a name that is not UTF-8
    assert status == 2
    assert "\\udcff\\udcfe" in err
    assert line_of(ValueError(f"{HOSTILE}\nand more")) == f"{HARMLESS} … (--debug shows all)"
    assert clean(line_of(RuntimeError(HOSTILE)))


def test_settings_of_a_run_and_what_its_checkpoints_say(monkeypatch, capsys, tmp_path):
    config = with_settings(config_of(as_recipe(CHECKERBOARD)), data=f"{HOSTILE}.npy")
    RunFolder(tmp_path / "run", config).close()
    monkeypatch.setattr(sys, "argv", ["vages", "train", "--resume", str(tmp_path / "run"), "--dry-run"])
    with pytest.raises(SystemExit):
        cli.main()
    told = capsys.readouterr().out
    assert clean(told)
    assert HARMLESS in told

    RunFolder(tmp_path / "deep", config_of(as_recipe(DEEP_PRESETS["digits-paper"]))).close()
    body = {"format": HOSTILE}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    path = write_checkpoint(tmp_path / "deep" / "checkpoints", 1, {}, {})
    (path / "manifest.json").write_text(json.dumps({"manifest": body, "sha256": digest}))
    status, err = main(monkeypatch, capsys, "sample", tmp_path / "deep")
    assert status == 2
    assert "checkpoint refused" in err
    assert clean(err)
    assert r"\x1b]0;owned" in err


def test_tables_bars_and_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    console.print_table([("name", HOSTILE)])
    console.say(HOSTILE)
    assert capsys.readouterr().out.count(HARMLESS) == 2
    with console.waiting(HOSTILE) as note:
        note(HOSTILE)
    assert capsys.readouterr().err == f"{HARMLESS}\n"


def test_nothing_is_lost_where_a_table_is_too_wide(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    console.print_table([("", *(f"run-{i}-of-a-long-name" for i in range(6))), ("loss", *("-123.456 ± 0.12",) * 6)])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    letters = lambda text: sorted(text.replace(" ", "").replace("\n", ""))
    assert letters(out) == letters("".join(f"run-{i}-of-a-long-name" for i in range(6)) + "loss" + 6 * "-123.456±0.12")


def test_json_keeps_the_values(capsys):
    console.print_json({HOSTILE: [HOSTILE, "naïve σ", "\udcff"]})
    out = capsys.readouterr().out
    assert clean(out)
    assert "naïve σ" in out
    assert json.loads(out) == {HOSTILE: [HOSTILE, "naïve σ", "\udcff"]}
    assert escape_json('"\\n"') == '"\\n"'


def list_datasets(terminal, folder):
    """A child process with this terminal: the output of `vages data` for a folder."""
    os.setsid()
    handle = os.open(terminal, os.O_RDWR)
    for standard in range(3):
        os.dup2(handle, standard)
    sys.stdout, sys.stderr = (os.fdopen(standard, "w", closefd=False) for standard in (1, 2))
    os.environ |= {"VAGES_DATA": folder, "TERM": "xterm-256color", "COLUMNS": "1000"}
    sys.argv = ["vages", "data"]
    cli.main()


def test_a_real_terminal_sees_no_sequence_of_a_name(server, tmp_path):  # noqa: F811
    """Only the table's own colors are escape sequences."""
    folder = tmp_path / HOSTILE
    (folder / "mnist").mkdir(parents=True)
    master, slave = os.openpty()
    with reading(master) as shown:
        process = server.Process(target=list_datasets, args=(os.ttyname(slave), str(folder)))
        process.start()
        process.join(120)
        os.close(slave)
    text = b"".join(shown).decode()
    assert process.exitcode == 0, text
    assert HARMLESS in text
    assert "\x1b[32m" in text  # green
    assert not any(sequence in text for sequence in ("\x1b]0", "\x1b[2J", "\x9b", "\u202e", "\u2066", "\u2028"))


def test_an_encoding_that_lacks_letters_is_no_error(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["vages", "data", "--json"])
    monkeypatch.setenv("VAGES_DATA", "σ")
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    assert b"\\u03c3" in written.getvalue()


def test_standard_error_that_has_gone_is_no_error(monkeypatch):
    source, target = os.pipe()
    os.close(source)
    gone = open(target, "w")  # noqa: SIM115
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", gone)
        stream = StandardError()
        assert stream.write("x\n" * 10**5)
        stream.flush()
        assert not stream.isatty()
        patch.setenv("FORCE_COLOR", "1")
        patch.setenv("TERM", "xterm")
        with ProgressBar(10) as bar:
            bar({"step": 5, "seconds": 1.0, "loss": 1.0})
        with console.bar() as show, console.waiting("x") as note:
            show(1, 2)
            note("x")
    with suppress(BrokenPipeError):
        gone.close()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_of(monkeypatch):
    """Standard error as a terminal that records what is written to it."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"  # the sequences that hide and show a terminal's cursor


def test_a_progress_bar_appears_with_the_first_record_and_goes_with_the_last_step(monkeypatch):
    terminal = terminal_of(monkeypatch)
    bar = ProgressBar(30)
    assert terminal.getvalue() == ""
    bar({"step": 10, "seconds": 1.0, "loss": 2.0, "test_log_likelihood": [1.0, 3.0]})
    assert HIDDEN in terminal.getvalue()
    bar({"step": 20, "seconds": 2.0, "loss": [0.5, 1.5]})
    assert SHOWN not in terminal.getvalue()
    bar({"step": 30, "seconds": 3.0, "loss": 0.25})
    text = terminal.getvalue()
    assert "30/30" in text
    assert "10 it/s" in text
    assert "loss 0.25" in text
    assert "test log-lik. 2" in text
    assert (text.count(HIDDEN), text.count(SHOWN)) == (1, 1)


def test_a_progress_bar_goes_when_training_ends_early(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with ProgressBar(30, done=20):
        assert HIDDEN in terminal.getvalue()
        assert "20/30" in terminal.getvalue()
    assert SHOWN in terminal.getvalue()
    terminal.truncate(0)
    bar = ProgressBar(30)
    bar({"step": 10, "seconds": 1.0})
    assert SHOWN not in terminal.getvalue()
    del bar
    assert SHOWN in terminal.getvalue()


def test_a_progress_bar_is_silent_where_there_is_no_terminal(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with ProgressBar(30, visible=False) as bar:
        bar({"step": 30, "seconds": 1.0})
    assert terminal.getvalue() == ""
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with ProgressBar(30) as bar:
        bar({"step": 30, "seconds": 1.0})
    assert plain.getvalue() == ""


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with ProgressBar(40, lines=True) as bar:
        assert capsys.readouterr().err == "0/40  compiling…\n"
        for step, seconds in ((10, 100.0), (20, 110.0), (30, 135.0), (40, 136.0)):
            now[0] = seconds
            bar({"step": step, "seconds": seconds, "loss": step / 10})
    assert capsys.readouterr().err.splitlines() == [
        "10/40  time left not known yet  loss 1",
        "30/40  1.00 it/s  about 10 s left  loss 3",
        "40/40  1.82 it/s  loss 4",
    ]
    with ProgressBar(40, visible=False, lines=True) as bar:
        bar({"step": 40, "seconds": 1.0})
    assert capsys.readouterr().err == ""


def test_the_time_left_is_without_compiling(monkeypatch, capsys):
    """Chunks of 100 and, after an evaluation, 50: 4 s per 100 iterations, 20 s for each of four compilations."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_BETWEEN", 0.0)
    ends = {100: 24.0, 200: 28.0, 300: 32.0, 400: 36.0, 450: 58.0, 500: 80.0, 600: 84.0, 700: 108.0, 800: 112.0}
    with ProgressBar(4500, lines=True) as bar:
        for step, seconds in ends.items():
            bar({"step": step, "seconds": seconds} | ({"test_log_likelihood": 1.0} if step == 450 else {}))
    lines = capsys.readouterr().err.splitlines()[1:]
    assert "it/s" not in lines[0]
    assert "time left not known yet" in lines[0]
    for line, step in zip(lines[1:], list(ends)[1:], strict=True):
        assert f"{step}/4500  25 it/s  about {(4500 - step) / 25:.0f} s left" in line


def test_the_bar_of_a_terminal_says_the_same_time_left(monkeypatch):
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", "120")
    bar = ProgressBar(10**6, done=1000)
    bar({"step": 1010, "seconds": 500.0})
    bar._bar.refresh()
    assert "time left not known yet" in terminal.getvalue()
    bar({"step": 1020, "seconds": 501.0})
    for seconds in (900.0, 1900.0):  # two restores of a checkpoint
        bar({"step": 1000, "seconds": seconds})
        bar({"step": 1010, "seconds": seconds + 1})
        bar({"step": 1020, "seconds": seconds + 2})
    bar._bar.refresh()
    assert "about 27.7 h left" in terminal.getvalue()
    assert "10 it/s" in terminal.getvalue()
    bar._bar.stop()


def test_a_bar_says_that_it_waits_for_the_compiler(monkeypatch):
    terminal = terminal_of(monkeypatch)
    with ProgressBar(30) as bar:
        assert "compiling…" in terminal.getvalue()
        terminal.truncate(0)
        bar({"step": 10, "seconds": 1.0, "loss": 2.0})
    assert "compiling…" not in terminal.getvalue().rpartition("loss")[2]
