"""How the tests' programs are compiled: without optimization if each runs once, as for users if bits or speed count."""

import os
import threading
from functools import cache
from typing import Any

import jax

try:  # options of one program are public, options of all that follow are not: without them tests only take longer
    from jax._src import compiler
    from jax._src.interpreters import mlir

    _options, _make_context = compiler.get_compile_options, mlir.make_ir_context
except (ImportError, AttributeError):
    compiler = mlir = None

# Kernels by the plain emitter, in one piece: a fifth of the time that a CPU's programs wait for the compiler.
# A tenth is taken by passes that check the compiler's own work, and by those that speed up loops or find little here.
_SKIPPED = ("hlo-verifier", "while-loop-invariant-code-motion", "while-loop-constant-sinking", "reshape-mover")
HASTE = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_disable_hlo_passes": ",".join(_SKIPPED),
}
# For programs that run for seconds: compiled in twice the time, and run in a third of it.
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
    if _hasty and not env_options_overrides:  # a program with options of its own is left as it is
        env_options_overrides = {**known(), **LONG_RUNS} if _long_runs else known()
    return _options(*args, env_options_overrides=env_options_overrides, **how)


def _shared_context(*args, **how):
    """One context for all programs of a thread. JAX makes one for each program, and loads every dialect into it."""
    if args or how:  # renamed in this version of JAX
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
    """Return the environment of a command that compiles without optimization, with more of the compiler's flags."""
    haste = (f"--{name}={str(value).lower()}" for name, value in known().items() if name != "xla_disable_hlo_passes")
    own = os.environ.get("XLA_FLAGS", "")
    return {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": " ".join((own, *haste, *flags))}
