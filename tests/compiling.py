"""How the tests' programs are compiled: in haste where each runs once, and as for users where bits or speed count."""

from functools import cache

import jax
from jax._src import compiler

# Kernels written out one by one, in one piece: a fifth of the time that a CPU's programs wait for the compiler.
HASTE = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}

_options = compiler.get_compile_options
_hasty = False


@cache
def known() -> dict:
    """These options, if the compiler at hand knows them."""
    try:
        jax.jit(lambda: 0).lower().compile(HASTE)
    except jax.errors.JaxRuntimeError:
        return {}
    return HASTE


def _options_of_all(*args, env_options_overrides=None, **how):
    given = env_options_overrides or {}
    return _options(*args, env_options_overrides={**(known() if _hasty and not given else {}), **given}, **how)


def compile_in_haste(yes: bool = True):
    """What is compiled from now on is so, or as for users. What was compiled before is forgotten."""
    global _hasty
    _hasty, compiler.get_compile_options = yes, _options_of_all
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", yes)
