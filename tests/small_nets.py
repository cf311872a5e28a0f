"""Small networks that need little compilation, which would otherwise take most of the time."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)
IMAGE = (1, 8, 8)
HASTE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def filled(make, *args, seed=0, **sizes):
    """The result of `make(key, …)`, with uniform parameters from NumPy."""
    rng = np.random.default_rng(seed)

    def fill(leaf):
        bound = 1 / math.sqrt(math.prod(leaf.shape[1:])) if len(leaf.shape) > 1 else 0.3
        return jnp.asarray(rng.uniform(-bound, bound, leaf.shape), leaf.dtype)

    shapes = eqx.filter_eval_shape(make, KEY, *args, **sizes)
    return jax.tree.map(fill, shapes)


def normal(seed, *shape):
    """Standard normal numbers in the default dtype."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.zeros(()).dtype)


def quick(function):
    """`function` of arrays and modules, compiled without optimization, as each one runs only once."""

    def call(*args):
        arrays, rest = eqx.partition(args, eqx.is_array)
        program = jax.jit(lambda arrays: function(*eqx.combine(arrays, rest))).lower(arrays)
        try:
            return program.compile(HASTE)(arrays)
        except jax.errors.JaxRuntimeError:  # this compiler does not know the options
            return program.compile()(arrays)

    return call
