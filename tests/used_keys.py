"""Records the keys that noise is drawn from, to find keys that are used twice."""

from contextlib import contextmanager
from unittest import mock

import jax


@contextmanager
def used_keys(*names):
    """Yield a list of the keys given to `jax.random.split` and to these functions of `jax.random` in the block.

    `fold_in` is not recorded: it does not use up its key, but may return a key that `split` returns, too.
    """
    keys = []

    def recorded(function):
        def call(key, *args, **kwargs):
            jax.debug.callback(lambda data: keys.append(tuple(data.tolist())), jax.random.key_data(key))
            return function(key, *args, **kwargs)

        return call

    functions = {name: recorded(getattr(jax.random, name)) for name in ("split", *names)}
    with jax.disable_jit(), mock.patch.multiple(jax.random, **functions):  # pyright: ignore
        yield keys
        jax.effects_barrier()
