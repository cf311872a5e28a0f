"""`fit` from a learner's state, for tests that make their own state."""

from copy import copy
from typing import Any

import jax
import jax.numpy as jnp

from vages.training import Fitted, Learner, fit


def keys_of(seed: Any) -> Any:
    """The key of a seed, or the keys of several seeds."""
    return jax.random.key(seed) if isinstance(seed, int) else jax.vmap(jax.random.key)(jnp.asarray(seed, jnp.uint32))


def fit_state(learner: Any, state: Any, data: Any, *, seed: Any = 0, **how: Any) -> Fitted:
    """Train from the state, with its model and posterior."""
    return fit(keys_of(seed), state.model, state.posterior, data, learner, state=state, **how)


def with_step(learner: Learner, step: Any) -> Learner:
    """The learner with another step function."""
    own = copy(learner)
    object.__setattr__(own, "step", step)
    return own
