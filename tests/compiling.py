"""How the tests' programs are compiled: without optimization by default, and as for users in tests of bits or speed."""

import os
import threading
from functools import cache
from typing import Any

import jax

try:  # there is no public way to set options for all programs; without these modules tests only take longer
    from jax._src import compiler
    from jax._src.interpreters import mlir

    _options, _make_context = compiler.get_compile_options, mlir.make_ir_context
except (ImportError, AttributeError):
    compiler = mlir = None

# The plain emitter, without splitting kernels, saves a fifth of the compile time on a CPU. Skipping passes that check
# the compiler's own work, or speed up loops, or find little in these programs, saves a tenth.
_SKIPPED = ("hlo-verifier", "while-loop-invariant-code-motion", "while-loop-constant-sinking", "reshape-mover")
HASTE = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_disable_hlo_passes": ",".join(_SKIPPED),
}
# For programs that run for seconds: twice the compile time, a third of the run time.
LONG_RUNS = {"xla_backend_optimization_level": 1, "xla_disable_hlo_passes": _SKIPPED[0]}

_hasty = _long_runs = False
_of_thread = threading.local()


@cache
def known() -> dict[str, Any]:
    """Return these options, if the installed compiler has them."""
    try:
        jax.jit(lambda: 0).lower().compile(HASTE)
    except jax.errors.JaxRuntimeError:
        return {}
    return HASTE


def _options_in_haste(*args, env_options_overrides=None, **how):
    if _hasty and not env_options_overrides:  # a program with its own options is not changed
        env_options_overrides = {**known(), **LONG_RUNS} if _long_runs else known()
    return _options(*args, env_options_overrides=env_options_overrides, **how)


def _shared_context(*args, **how):
    """One context for all programs of a thread. JAX would make one per program, and load every dialect each time."""
    if args or how:  # another signature in this version of JAX
        return _make_context(*args, **how)
    if not hasattr(_of_thread, "context"):
        _of_thread.context = _make_context()
    return _of_thread.context


def compile_in_haste(yes: bool = True, *, long_runs: bool = False):
    """Switch how later programs are compiled, and clear the cache of compiled programs."""
    global _hasty, _long_runs
    _hasty, _long_runs = yes, long_runs
    if compiler is not None and mlir is not None:
        compiler.get_compile_options = _options_in_haste
        mlir.make_ir_context = _shared_context
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", yes)


def environment(*flags: str) -> dict[str, str]:
    """Return the environment of a command that compiles without optimization, with additional compiler flags."""
    haste = (f"--{name}={str(value).lower()}" for name, value in known().items() if name != "xla_disable_hlo_passes")
    own = os.environ.get("XLA_FLAGS", "")
    return {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": " ".join((own, *haste, *flags))}
