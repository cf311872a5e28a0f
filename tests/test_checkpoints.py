"""A checkpoint is complete or absent. A damaged one is refused by name, and the previous one is used."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from errors import refused
from vages.files import BadFile
from vages.storage.directory import Directory
from vages.training.checkpoint import (
    ARRAYS,
    MANIFEST,
    checkpoints,
    last_step,
    newest_about,
    newest_checkpoint,
    prune,
    read_checkpoint,
    sweep,
    write_checkpoint,
)
from vages.training.trees import named_arrays, with_arrays

FUZZ = int(os.environ.get("VAGES_FUZZ", "2000"))


def some(step):
    return {
        "model/weight": np.full((3, 2), step, np.float32),
        "count": np.asarray(step, np.int32),
        "empty": np.zeros((0, 4), np.float64),
        "narrow": np.asarray([1.5, step], ml_dtypes.bfloat16),
        "key": np.asarray([1, step], np.uint32),
    }


def save(folder, step):
    return write_checkpoint(folder, step, some(step), {"seeds": [0], "note": "ε"})


def newest(folder):
    refused = []
    found = newest_checkpoint(folder, refused.append)
    assert found is not None
    return found, refused


def test_what_is_written_is_read(tmp_path):
    path = save(tmp_path, 7)
    found = read_checkpoint(path)
    assert found.step == 7
    assert found.about == {"seeds": [0], "note": "ε"}
    for name, array in some(7).items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()
    manifest = json.loads((path / MANIFEST).read_text())["manifest"]
    assert manifest["format"] == 1
    assert manifest["arrays"]["narrow"] == {"shape": [2], "dtype": "bfloat16"}
    assert set(manifest["files"][ARRAYS]) == {"bytes", "sha256"}


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "longer":
        path.write_bytes(path.read_bytes() + b" ")
    elif how == "replaced by a folder":
        path.unlink()
        path.mkdir()
    else:
        content = bytearray(path.read_bytes())
        content[int(how) % len(content)] ^= 1
        path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", [ARRAYS, MANIFEST])
@pytest.mark.parametrize("how", ["missing", "truncated", "emptied", "longer", "replaced by a folder", "0", "100", "-9"])
def test_what_is_damaged_is_refused_and_the_one_before_is_used(tmp_path, name, how):
    save(tmp_path, 1)
    damage(save(tmp_path, 2) / name, how)
    found, refused = newest(tmp_path)
    if name == MANIFEST and how == "longer":  # whitespace after the end changes nothing
        assert found.step == 2
        return
    assert found.step == 1
    assert found.arrays["model/weight"].tolist() == some(1)["model/weight"].tolist()
    assert len(refused) == 1
    assert str(tmp_path / "step-000000000002") in refused[0]


@pytest.mark.parametrize("name", [ARRAYS, MANIFEST])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO])
def test_errors_of_the_system_are_no_damage(tmp_path, monkeypatch, name, number):
    """An earlier checkpoint in place of one that is whole would lose iterations without need."""
    save(tmp_path, 1)
    path, read = save(tmp_path, 2), Directory.read_bytes

    def fails(self, file, limit):
        if self.path == path and file == name:
            raise OSError(number, os.strerror(number), file)
        return read(self, file, limit)

    monkeypatch.setattr(Directory, "read_bytes", fails)
    with refused(str(path), os.strerror(number), OSError):
        newest_checkpoint(tmp_path, pytest.fail)
    if name == MANIFEST:
        for other in (newest_about, last_step):
            with refused(str(path), os.strerror(number), OSError):
                other(tmp_path)


def test_every_flipped_bit_is_seen(tmp_path):
    for name in (ARRAYS, MANIFEST):
        path = save(tmp_path, 3) / name
        good = path.read_bytes()
        for i in range(len(good)):
            path.write_bytes(good[:i] + bytes([good[i] ^ (1 << (i % 8))]) + good[i + 1 :])
            try:
                found = read_checkpoint(path.parent)
            except BadFile:
                continue
            assert name == MANIFEST  # whitespace may change
            assert {k: v.tobytes() for k, v in found.arrays.items()} == {k: v.tobytes() for k, v in some(3).items()}
            assert (found.step, found.about) == (3, {"seeds": [0], "note": "ε"})
        path.write_bytes(good)


def test_forged_files_raise_nothing_but_the_documented_error(tmp_path):
    """Modified files with correct checksums reach the parser itself. VAGES_FUZZ=10000 for a longer run."""
    from hashlib import sha256

    from vages.training.checkpoint import _digest

    path = save(tmp_path, 4)
    arrays, body = (path / ARRAYS).read_bytes(), json.loads((path / MANIFEST).read_text())["manifest"]
    generator, taken, refusals = random.Random(0), 0, []
    odd = [None, -1, 0, 1, 2**70, 1e300, "x", "float32", [], [1], [-1], [2**62, 2**62], {}, {"a": 1}, True, [[1]]]
    for turn in range(FUZZ):
        content, forged = bytearray(arrays), json.loads(json.dumps(body))
        if turn % 2:
            for _ in range(generator.randint(1, 4)):
                content[generator.randrange(len(content))] = generator.randrange(256)
            if turn % 3 == 0:
                del content[generator.randrange(len(content)) :]
            if turn % 5 == 0:
                content += bytes(generator.randrange(40))
        else:
            spots = [(forged, key) for key in forged]
            spots += [(forged["arrays"], key) for key in forged["arrays"]]
            spots += [(value, key) for value in forged["arrays"].values() for key in value]
            spots += [(forged["files"], ARRAYS), *((forged["files"][ARRAYS], key) for key in ("bytes", "sha256"))]
            where, key = generator.choice(spots)
            where[key] = generator.choice(odd)
        if turn % 2:
            forged["files"][ARRAYS] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        (path / ARRAYS).write_bytes(content)
        (path / MANIFEST).write_text(json.dumps({"manifest": forged, "sha256": _digest(forged)}))
        try:
            read_checkpoint(path)
            taken += 1
        except BadFile as error:
            refusals.append(str(error))
    assert all(str(path) in line and "\n" not in line for line in refusals)
    assert 0 < taken < FUZZ / 2  # values of numbers may change, but names, shapes and sizes may not


def test_the_last_and_every_mth_stay(tmp_path):
    for step in range(10, 80, 10):
        save(tmp_path, step)
        prune(tmp_path, step, 2, lambda step: step % 30 == 0)
    assert [path.name for path in checkpoints(tmp_path)] == [f"step-{step:012d}" for step in (30, 60, 70)]


def test_orphans_are_swept(tmp_path):
    save(tmp_path, 5)
    (tmp_path / ".step-000000000006.123").mkdir()
    (tmp_path / ".step-000000000006.123" / ARRAYS).write_bytes(b"half")
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000005"]


def test_a_process_killed_while_writing_leaves_a_good_checkpoint(tmp_path):
    """Two hundred processes that only write checkpoints are killed at random moments."""
    script = Path(__file__).with_name("killed_writers.py")
    done = subprocess.run([sys.executable, script, tmp_path, "200"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    newest_step, torn = map(int, done.stdout.split())
    assert newest_step > 20
    assert torn > 20  # some kills happened during a write


def test_a_disk_that_fills_while_writing_loses_nothing(tmp_path):
    """The kernel refuses to write beyond a file size limit, as on a full disk."""
    save(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for limit in (0, 1, 100, 500):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            with pytest.raises(OSError, match="File too large"):
                save(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000001"]
    assert newest(tmp_path)[0].step == 1


def test_writing_over_a_damaged_checkpoint_puts_a_whole_one_in_its_place(tmp_path):
    damage(save(tmp_path, 2) / ARRAYS, "truncated")
    save(tmp_path, 2)
    assert newest(tmp_path)[0].step == 2


def test_a_checkpoint_under_another_name_is_refused(tmp_path):
    shutil.copytree(save(tmp_path, 2), tmp_path / "step-000000000009")
    with pytest.raises(BadFile, match="step-000000000009/manifest.json: .*got 2"):
        read_checkpoint(tmp_path / "step-000000000009")


class Pair(eqx.Module):
    a: Any
    b: Any
    name: str = eqx.field(static=True, default="pair")


def test_a_tree_comes_back_from_its_named_arrays():
    tree = Pair({"x": jnp.arange(3), "none": None}, (jnp.ones((2, 2)), jnp.asarray(True)))
    arrays = named_arrays(tree)
    assert sorted(arrays) == ["a/x", "b/0", "b/1"]
    back = with_arrays(
        Pair({"x": jnp.zeros(3, jnp.int32), "none": None}, (jnp.zeros((2, 2)), jnp.asarray(False))), arrays
    )
    assert back.a["x"].tolist() == [0, 1, 2]
    assert bool(back.b[1])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda arrays: arrays.pop("a"), r"^state: .*without \['a'\]"),
        (lambda arrays: arrays.update(c=np.zeros(1)), r"^state: .*with \['c'\]"),
        (lambda arrays: arrays.update(a=np.zeros(2, np.float32)), r"^state: .*\ba, got float32\[2\]"),
        (lambda arrays: arrays.update(a=np.zeros(3)), r"^state: .*\ba, got float64\[3\]"),
    ],
)
def test_arrays_of_another_tree_are_refused(change, says):
    tree = Pair(jnp.zeros(3), jnp.ones(()))
    arrays = named_arrays(tree)
    change(arrays)
    with pytest.raises(ValueError, match=says):
        with_arrays(tree, arrays)
