"""Rules for all tests: run-time type checks, no silent dtype or rank promotion, no warnings (see pyproject.toml)."""

import gc
import os
import shutil
import signal
import tempfile
from functools import partial
from importlib import import_module

gc.disable()  # imported modules stay in memory, so there is no garbage to collect until all tests are collected

# A background job of a shell ignores Ctrl-C, and so do its child processes. Tests that send Ctrl-C would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers and child processes share one compilation cache per session.
# A folder given by the user is kept, so the next session compiles almost nothing.
_CACHE = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="vages-tests-")
if _CACHE is not None:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Each worker gets one core, if there are enough: workers that share cores wait for each other's threads. Plugins
# import NumPy before the worker gets its core, so it inherits the number of BLAS threads; several on one core are slow.
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
compile_in_haste()  # also for computations during collection of the test files


_compiled_for = None


def pytest_configure(config):
    config.addinivalue_line("markers", "optimized: compiled as for users, which tests of bits and of speed need")
    config.addinivalue_line("markers", "long_runs: programs that run for seconds, longer than they are compiled")
    config.addinivalue_line("markers", "in_order: tests of one server, which remembers those before; as in the file")


def _compiled_how(item):
    """Return whether a test is compiled as for users, and whether it has long runs."""
    return tuple(item.get_closest_marker(name) is not None for name in ("optimized", "long_runs"))


def pytest_collection_modifyitems(items):
    """Group tests that are compiled in the same way, after pytest-randomly has shuffled files and tests."""
    places = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}
    line = lambda item: item.location[1] if item.get_closest_marker("in_order") else 0
    items.sort(key=lambda item: (places[item.path], _compiled_how(item), line(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Choose how XLA compiles. Most programs of tests run once, so compiling with few optimizations is faster.

    The cache is cleared for each file and each way of compiling, or a process would hold thousands of programs.
    """
    global _compiled_for
    optimized, long_runs = _compiled_how(item)
    if (item.path, optimized, long_runs) != _compiled_for:
        _compiled_for = item.path, optimized, long_runs
        compile_in_haste(not optimized, long_runs=long_runs)


def pytest_collection_finish():
    """Collect garbage less often: imported modules are permanent, and tracing creates many short-lived objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_unconfigure():
    if _CACHE is not None:
        shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_numbers(request, monkeypatch):
    """Each test of a file draws the same numbers from the file's generator, whatever tests ran before it."""
    if hasattr(request.module, "RNG"):
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(0))


@pytest.fixture
def short_chains(monkeypatch):
    """Pictures of a learned model use Gibbs chains of a few steps, to save time."""
    from vages.samplers import gibbs_sample  # imported here, as the process that starts the workers does not need it

    monkeypatch.setattr(
        import_module("vages.app.recipes.grbm_pictures"), "gibbs_sample", partial(gibbs_sample, steps=10)
    )


@pytest.fixture
def as_users_have_it():
    """Turn the run-time type checks of the tests off."""
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
    """(dtype, relative tolerance for round-off)."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param, {"float32": 1e-5, "float64": 1e-12}[request.param]
