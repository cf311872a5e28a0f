"""Where batches come from: arrays, memory-mapped arrays, functions of the step and iterators give the same training."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from errors import refused
from vages import (
    DSM,
    Batch,
    Checkpoints,
    EnergyModel,
    GaussianPosterior,
    Learner,
    Real,
    RunFolder,
    fit,
)
from vages.data import Batches
from vages.training import Guard
from vages.training import sources as sources_module
from vages.training.digests import sampled_fingerprint

KEY, BATCH = jax.random.key(7), 5
ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
LABELS = (np.arange(40) % 2).astype(np.float32)


def energy(params, v, h, context=None):
    shift = 0.0 if context is None else context["label"]
    return jnp.sum((v - params["w"] @ h - shift) ** 2) / 2 + jnp.sum(h**2) / 2


@cache
def parts(labeled=False) -> tuple[Any, Any, Learner]:
    model = EnergyModel(energy, {"w": jnp.ones((3, 2))}, v=Real(3), h=Real(2))
    context = {"label": 1} if labeled else {}
    posterior = GaussianPosterior.linear(jax.random.key(1), 3, 2, **({"context": context} if labeled else {}))
    return model, posterior, Learner(DSM(0.3), learning_rate=1e-2, posterior_steps=1)


def trained(data, *, steps=12, labeled=False, **how: Any):
    model, posterior, learner = parts(labeled)
    return fit(KEY, model, posterior, data, learner, steps=steps, **{"chunk": 4, **how})


def same(a, b):
    pairs = zip(
        jax.tree.leaves(eqx.filter(a.state, eqx.is_array)),
        jax.tree.leaves(eqx.filter(b.state, eqx.is_array)),
        strict=True,
    )
    assert all(np.array_equal(x, y) for x, y in pairs)


def batch_at(step: int, rows: Any = ROWS) -> Any:
    """The batches of an array, as a function of the step."""
    return jax.tree.map(lambda x: x[Batches(40, BATCH, 7).indices(step, 1)[0]], rows)


def mapped(path, rows=ROWS):
    np.save(path, rows)
    return np.load(path, mmap_mode="r")


@cache
def whole():
    return trained(ROWS, batch=BATCH)


def test_every_source_of_the_same_batches_gives_the_same_bits(tmp_path):
    same(trained(mapped(tmp_path / "rows.npy"), batch=BATCH), whole())
    same(trained(batch_at), whole())
    same(trained(lambda step: jnp.asarray(batch_at(step)), batch=BATCH), whole())
    same(trained(map(batch_at, itertools.count())), whole())
    same(trained([*map(batch_at, range(12))].__iter__()), whole())


def test_a_context_travels_with_its_rows(tmp_path):
    pair = Batch(ROWS, {"label": LABELS[:, None]})
    expected = trained(pair, labeled=True, batch=BATCH)
    assert not np.array_equal(expected.model.params["w"], whole().model.params["w"])
    on_disk = Batch(mapped(tmp_path / "rows.npy"), {"label": mapped(tmp_path / "labels.npy", LABELS[:, None])})
    same(trained(on_disk, labeled=True, batch=BATCH), expected)
    same(trained({"v": ROWS, "label": LABELS[:, None]}, labeled=True, batch=BATCH), expected)
    as_dict = lambda step: {"v": batch_at(step), "label": batch_at(step, LABELS[:, None])}
    same(trained(as_dict, labeled=True), expected)


def test_loaders_may_fill_one_buffer_again_and_again():
    rows = {"v": ROWS, "label": LABELS[:, None]}
    buffer = {name: np.empty((BATCH, *x.shape[1:]), np.float32) for name, x in rows.items()}

    def filled(step):
        for name, x in batch_at(step, rows).items():
            buffer[name][:] = x
        return buffer

    expected = trained(rows, labeled=True, batch=BATCH)
    same(trained(filled, labeled=True), expected)
    same(trained(map(filled, itertools.count()), labeled=True), expected)


def test_seeds_visit_a_mapped_array_each_in_its_own_order(tmp_path):
    model, posterior, learner = parts()
    keys = jax.vmap(jax.random.key)(jnp.arange(2, dtype=jnp.uint32))
    models, posteriors = eqx.filter_vmap(lambda key: (model, posterior))(keys)
    run = lambda data, **how: fit(keys, models, posteriors, data, learner, steps=6, chunk=3, **how)
    twice = np.stack([ROWS, 2 * ROWS])
    for rows in (ROWS, twice):
        same(run(mapped(tmp_path / "rows.npy", rows), batch=BATCH), run(rows, batch=BATCH))
    shared = run(batch_at)  # a function gives all seeds the same batches
    assert not np.array_equal(*shared.model.params["w"])  # but the noise differs


def test_parts_of_a_chunk_are_bounded_by_bytes(tmp_path, monkeypatch):
    """Smaller parts do not change a bit."""
    monkeypatch.setattr(sources_module, "_PART", 3 * BATCH * ROWS[0].nbytes)
    read = []
    take = np.memmap.__getitem__

    class Noted(np.memmap):
        def __getitem__(self, index):
            if isinstance(index, np.ndarray):
                read.append(len(index))
            return take(self, index)

    rows = mapped(tmp_path / "rows.npy").view(Noted)
    same(trained(rows, batch=BATCH, chunk=7), whole())
    assert max(read[1:]) <= 3 * BATCH  # the first read is for the fingerprint
    assert sum(read) >= 12 * BATCH


class Counting(Iterator):
    """An iterator with Grain's protocol, whose state is JSON or bytes."""

    def __init__(self, form: type = dict):
        self.step, self.form = 0, form

    def __next__(self):
        self.step += 1
        return batch_at(self.step - 1)

    def get_state(self):
        return {"step": self.step} if self.form is dict else str(self.step).encode()

    def set_state(self, state):
        self.step = state["step"] if self.form is dict else int(state)


def grains():
    """The same batches from Grain."""
    grain = pytest.importorskip("grain.python")
    return iter(grain.MapDataset.range(1000).map(batch_at).to_iter_dataset())


ITERATORS = {
    "json": Counting,
    "bytes": lambda: Counting(bytes),
    "grain": grains,
    "plain": lambda: map(batch_at, range(100)),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_iterators_are_resumed_exactly(kind, tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    trained(ITERATORS[kind](), steps=8, folder=folder, checkpoints=Checkpoints(every=4))
    folder.close()
    folder = RunFolder.reopen(tmp_path / "run")
    iterator = ITERATORS[kind]()
    same(trained(iterator, folder=folder, resume=True), whole())
    folder.close()
    np.testing.assert_array_equal(next(iterator), batch_at(12))  # no further batch was taken


@pytest.mark.parametrize("kind", ["json", "plain"])
@pytest.mark.parametrize("made", [4, 8])  # iterations before the run is resumed; its first checkpoint is at 8
def test_a_run_from_a_later_state_is_resumed_with_the_batches_after_its_own(kind, made, tmp_path):
    start = trained(batch_at, steps=4).state
    expected = trained(ITERATORS[kind](), state=start)
    folder = RunFolder(tmp_path / "run", {})
    if made == 8:
        trained(ITERATORS[kind](), steps=made, state=start, folder=folder)
    folder.close()
    folder = RunFolder.reopen(tmp_path / "run")
    same(trained(ITERATORS[kind](), state=start, folder=folder, resume=True), expected)
    folder.close()


def test_a_run_that_recovers_goes_back_in_its_data(tmp_path):
    """Iteration 6 diverges once; the batches after the checkpoint are read again."""
    model, posterior, learner = parts()
    read, spoilt = [], []

    class Noted(Counting):
        def __next__(self):
            read.append(self.step)
            rows = super().__next__()
            if self.step == 7 and not spoilt:
                spoilt.append(True)
                return np.full_like(rows, 1e25)
            return rows

    folder = RunFolder(tmp_path / "run", {})
    how = {"folder": folder, "checkpoints": Checkpoints(every=4), "guard": Guard("recover")}
    fitted = fit(KEY, model, posterior, Noted(), learner, steps=12, chunk=4, **how)
    folder.close()
    assert read == [0, *range(8), *range(4, 12)]  # the first one, for its shape
    assert fitted.step == 12
    assert np.isfinite(fitted.model.params["w"]).all()


def test_a_run_that_recovers_after_the_end_of_its_data_reads_them_again(tmp_path):
    """Iteration 6 diverges once; the data end at 7."""
    model, posterior, learner = parts()
    spoilt = []

    class Ending(Counting):
        def __next__(self):
            if self.step == 7:
                raise StopIteration
            rows = super().__next__()
            if self.step == 7 and not spoilt:
                spoilt.append(True)
                return np.full_like(rows, 1e25)
            return rows

    folder = RunFolder(tmp_path / "run", {})
    how = {"folder": folder, "checkpoints": Checkpoints(every=4), "guard": Guard("recover")}
    with refused("data", got="an end after 7"):
        fit(KEY, model, posterior, Ending(), learner, steps=12, chunk=4, **how)
    folder.close()


def test_numbers_of_16_bits_are_trained_on_and_resumed(tmp_path):
    rows = jnp.asarray(ROWS, jnp.bfloat16)
    folder = RunFolder(tmp_path / "run", {})
    trained(rows, steps=4, batch=BATCH, folder=folder)
    folder.close()
    folder = RunFolder.reopen(tmp_path / "run")
    same(trained(rows, batch=BATCH, folder=folder, resume=True), trained(rows, batch=BATCH))
    folder.close()
    bad = np.asarray(rows).copy()
    bad[3, 0] = np.nan
    with refused("data", "NaN"):
        trained(lambda step: bad)


def test_an_iterator_that_ends_says_so_and_keeps_the_run(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    with refused("data") as caught:
        trained(map(batch_at, range(7)), folder=folder)
    folder.close()
    assert "after 7" in str(caught.value)
    folder = RunFolder.reopen(tmp_path / "run")
    same(trained(map(batch_at, range(100)), folder=folder, resume=True), whole())
    folder.close()
    with refused("data"):
        trained(iter([]))


def test_other_data_are_refused_on_resume(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    trained(batch_at, steps=4, folder=folder)
    folder.close()
    for other in (lambda step: batch_at(step) + 1, map(batch_at, range(100)), ROWS):
        folder = RunFolder.reopen(tmp_path / "run")
        with refused("resume"):
            trained(other, folder=folder, resume=True, batch=BATCH)
        folder.close()


def test_a_large_array_is_told_from_another_by_some_rows(tmp_path):
    rows = np.zeros((3000, 4096), np.float32)
    first = sampled_fingerprint(mapped(tmp_path / "a.npy", rows))
    assert first["rows"] < 3000
    assert first["shape"] == [3000, 4096]
    for row in (0, 2999):
        other = rows.copy()
        other[row, 5] = 1
        assert sampled_fingerprint(mapped(tmp_path / "b.npy", other)) != first
    assert sampled_fingerprint(mapped(tmp_path / "c.npy", rows)) == first


NAN = np.where(np.arange(15).reshape(5, 3) == 7, np.nan, 1).astype(np.float32)


@pytest.mark.parametrize(
    ("data", "how", "name"),
    [
        (lambda step: ROWS[:5, :2], {}, "data"),
        (lambda step: ROWS[0, 0], {}, "data"),
        (lambda step: ROWS[:0], {}, "data"),
        (lambda step: ROWS[: 5 + (step == 6)], {}, "data"),
        (lambda step: ROWS[:5].astype(np.float64) if step == 6 else ROWS[:5], {}, "data"),
        (lambda step: NAN if step == 6 else ROWS[:5], {}, "data"),
        (lambda step: ROWS[:5], {"batch": 4}, "batch"),
        (lambda step: {"x": ROWS[:5]}, {}, "data"),
        (lambda step: Batch(ROWS[:5], {"label": LABELS[:4]}), {}, "context['label']"),
        (ROWS[:0], {"batch": 4}, "data"),
        (ROWS, {"batch": 41}, "batch"),
        (ROWS, {"batch": 0}, "batch"),
    ],
)
def test_batches_that_do_not_fit_are_refused(data, how, name):
    with refused(name):
        trained(data, **how)


@pytest.mark.parametrize("data", [3.0, [1.0, 2.0], None, lambda step: "rows", lambda step: ROWS.astype(int)])
def test_what_is_no_data_is_refused(data):
    with refused("data", kind=TypeError):
        trained(data)


def test_rows_of_a_mapped_array_that_are_not_finite_are_named(tmp_path):
    rows = ROWS.copy()
    rows[17, 1] = np.inf
    with refused("data") as caught:
        trained(mapped(tmp_path / "rows.npy", rows), batch=BATCH)
    assert "row 17" in str(caught.value)


def test_a_mesh_may_have_any_axes():
    for shape, names in (((1,), ("x",)), ((1, 1), ("data", "model"))):
        mesh = Mesh(np.asarray(jax.devices()[:1]).reshape(shape), names)
        fitted = trained(ROWS, batch=BATCH, mesh=mesh)
        np.testing.assert_allclose(fitted.model.params["w"], whole().model.params["w"], rtol=1e-5)


def test_a_state_is_continued():
    half = trained(ROWS, steps=8, batch=BATCH)
    same(trained(ROWS, batch=BATCH, state=half.state), whole())
    with refused("steps", got=4):
        trained(ROWS, steps=4, batch=BATCH, state=half.state)
    model, posterior, learner = parts(True)
    with refused("state"):
        fit(KEY, model, posterior, ROWS, learner, steps=12, batch=BATCH, state=half.state)


def test_a_key_is_asked_for_in_its_place():
    model, posterior, learner = parts()
    for wrong in (0, learner, "key"):
        with refused("key", kind=TypeError):
            fit(wrong, model, posterior, ROWS, learner, steps=2)
    with refused("key", "unsafe_rbg"):  # its noise would depend on the lengths of chunks
        fit(jax.random.key(0, impl="unsafe_rbg"), model, posterior, ROWS, learner, steps=2)
    same(
        trained(ROWS, batch=BATCH),
        fit(jnp.asarray([0, 7], jnp.uint32), model, posterior, ROWS, learner, steps=12, batch=BATCH, chunk=4),
    )


def test_a_selection_may_be_of_the_lowest():
    values = iter([3.0, 1.0, 2.0])
    seen = []

    def evaluate(state):
        seen.append(np.array(state.model.params["w"]))
        return {"fid": next(values)}

    fitted = trained(ROWS, batch=BATCH, evaluate=evaluate, evaluate_every=4, minimize="fid")
    np.testing.assert_array_equal(fitted.model.params["w"], seen[1])
    with refused("minimize"):
        trained(ROWS, batch=BATCH, minimize="a", maximize="b")


def test_a_resume_that_would_compare_different_values_is_refused(tmp_path):
    looked = lambda state: {"rising": float(state.step), "falling": float(-state.step)}
    run = lambda steps, **how: trained(ROWS, steps=steps, batch=BATCH, evaluate=looked, evaluate_every=4, **how)
    folder = RunFolder(tmp_path / "run", {})
    run(4, folder=folder, maximize="falling")
    folder.close()
    for other in ({"maximize": "rising"}, {"minimize": "falling"}, {}):
        folder = RunFolder.reopen(tmp_path / "run")
        with refused("resume") as caught:
            run(8, folder=folder, resume=True, **other)
        assert "in place of maximize falling" in str(caught.value)
        folder.close()
    folder = RunFolder.reopen(tmp_path / "run")
    fitted = run(8, folder=folder, resume=True, maximize="falling")
    folder.close()
    same(fitted, run(8, maximize="falling"))
    assert not np.array_equal(fitted.model.params["w"], fitted.state.model.params["w"])  # that of iteration 4


def test_an_evaluation_may_not_replace_a_metric():
    for name in ("loss", "step"):
        with refused("metrics", repr(name)):
            trained(ROWS, batch=BATCH, evaluate=lambda state, name=name: {name: 0.0})


def test_arrays_of_one_name_are_refused_before_a_folder_is_written(tmp_path):
    _, posterior, learner = parts()
    params = {"a/w": jnp.ones((3, 2)), "a": {"w": jnp.ones((3, 2))}}
    twice = EnergyModel(lambda p, v, h: energy({"w": p["a/w"] + p["a"]["w"]}, v, h), params, v=Real(3), h=Real(2))
    folder = RunFolder(tmp_path / "run", {})
    with refused("model/params/a/w"):
        fit(KEY, twice, posterior, ROWS, learner, steps=2, batch=BATCH, folder=folder)
    folder.close()
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))


_KILLED = """
import sys
sys.path.insert(0, {tests!r})
import os, signal
from pathlib import Path
from compiling import compile_in_haste
compile_in_haste()
from test_sources import *
folder = RunFolder(Path({path!r}), {{}})
kill = lambda record: os.kill(os.getpid(), signal.SIGKILL) if record["step"] == 8 else None
trained(Counting(), folder=folder, checkpoints=Checkpoints(every=4), callbacks=[kill])
"""


def test_a_killed_run_on_an_iterator_ends_with_the_same_bits(tmp_path, request):
    code = _KILLED.format(tests=str(request.path.parent), path=str(tmp_path / "run"))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    folder = RunFolder.reopen(tmp_path / "run")
    same(trained(Counting(), folder=folder, resume=True), whole())
    folder.close()
