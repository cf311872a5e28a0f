"""The house rules: run-time type checks, no silent dtype or rank promotion, no warnings (see pyproject.toml)."""

import gc
import os
import shutil
import signal
import tempfile
from functools import partial
from importlib import import_module

gc.disable()  # imported modules stay in memory, so garbage is not collected until all tests are collected

# A shell's job in the background ignores Ctrl-C, as do all processes that it starts: tests that send one would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers and processes share one compilation cache for the session.
# A folder given by the user is kept, so that the next session compiles almost nothing.
_CACHE = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="vages-tests-")
if _CACHE is not None:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Each worker has one core, if there are enough, as workers that share all cores wait for each other's threads. Plugins
# import NumPy before a worker gets its core, so it inherits the number of BLAS threads: several on one core are slow.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if _WORKER is None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if _WORKER is not None and hasattr(os, "sched_setaffinity"):
    _CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_CORES[int(_WORKER.removeprefix("gw")) % len(_CORES)]})

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import config, install_import_hook  # noqa: E402

os.environ.setdefault("MPLBACKEND", "agg")
install_import_hook("vages", "beartype.beartype")

from compiling import compile_in_haste  # noqa: E402

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
compile_in_haste()  # what test files compute as they are collected, too


_compiled_for = None


def pytest_configure(config):
    config.addinivalue_line("markers", "optimized: compiled as for users, which tests of bits and of speed need")
    config.addinivalue_line("markers", "long_runs: programs that run for seconds, longer than they are compiled")
    config.addinivalue_line("markers", "in_order: tests of one server, which remembers those before; as in the file")


def _compiled_how(item):
    """Return whether a test is compiled as for users, and whether for long runs."""
    return tuple(item.get_closest_marker(name) is not None for name in ("optimized", "long_runs"))


def pytest_collection_modifyitems(items):
    """Keep tests that are compiled alike together, after pytest-randomly has shuffled files and tests."""
    places = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}
    line = lambda item: item.location[1] if item.get_closest_marker("in_order") else 0
    items.sort(key=lambda item: (places[item.path], _compiled_how(item), line(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Most programs of a test run once, and compiling is their cost: XLA is told to take it lightly.

    What was compiled otherwise is forgotten; so is what other files needed, or a process would hold thousands.
    """
    global _compiled_for
    optimized, long_runs = _compiled_how(item)
    if (item.path, optimized, long_runs) != _compiled_for:
        _compiled_for = item.path, optimized, long_runs
        compile_in_haste(not optimized, long_runs=long_runs)


def pytest_collection_finish():
    """What was imported stays, and tracing makes much that goes again at once: garbage is looked for more rarely."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_unconfigure():
    if _CACHE is not None:
        shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_numbers(request, monkeypatch):
    """Each test of a file draws the same numbers from the file's generator, whatever ran before it."""
    if hasattr(request.module, "RNG"):
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(0))


@pytest.fixture
def short_chains(monkeypatch):
    """Pictures of what a run learnt with Gibbs chains of a few steps: drawn all the same, and sooner."""
    from vages.samplers import gibbs_sample  # here: the process that starts the workers waits for no import of it

    monkeypatch.setattr(
        import_module("vages.app.recipes.grbm_pictures"), "gibbs_sample", partial(gibbs_sample, steps=10)
    )


@pytest.fixture
def as_users_have_it():
    """Without the run-time type checks of the tests."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)


@pytest.fixture
def float64():
    """Everything inside the test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def precision(request):
    """(dtype, the relative error that round-off allows)."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param, {"float32": 1e-5, "float64": 1e-12}[request.param]
