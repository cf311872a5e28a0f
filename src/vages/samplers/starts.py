"""Where Markov chains begin: far apart, or at the user's v, with h drawn given v unless it is also the user's."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from vages.checks import named_parts
from vages.models import EBLVM, TractableEBLVM, features_of
from vages.samplers.chains import Job
from vages.samplers.checks import as_value
from vages.samplers.exact import sample_posterior_exactly
from vages.samplers.langevin import Held, chain_dtype
from vages.samplers.mcmc import MCMC
from vages.samplers.moves import far_apart
from vages.samplers.target import MAX_SUMMED, State, latent_states, latents

_OF_LATENTS = MCMC("hmc", warmup=200)


def starts(
    keys: tuple[PRNGKeyArray, PRNGKeyArray], model: EBLVM, given: dict[str, Any], shape: tuple[int, int], start: Any
) -> State:
    """Return the starts of the chains (targets, chains, …): far apart, or `start`, which is v or (v, h)."""
    states = far_apart(keys[0], model, given, shape, settled=start is None)
    if start is None:
        return states
    asked = _asked(model, start, shape, chain_dtype(model))
    states = states | asked
    return states if len(asked) == len(states) else states | _latents_given(keys[1], model, given, states)


def _asked(model: EBLVM, start: Any, shape: tuple[int, int], dtype: Any) -> State:
    """Return the user's start as states. It has one row per chain, or per draw if there are n targets."""
    v, h = start if isinstance(start, tuple) else (start, None)
    targets, chains = shape
    count = targets if targets > 1 else chains
    states = {"v": as_value("start", v, model.v, (count,))}
    if h is not None:
        states |= {
            name: as_value(f"start: {name}", value, domain, (count,))
            for (name, domain), (_, value, _) in zip(
                latents(model.h).items(), named_parts("start: h", h, model.h), strict=True
            )
        }
    rows = lambda x: x[:, None] if targets > 1 else x[None]
    return {name: jnp.broadcast_to(rows(x.astype(dtype)), (*shape, *x.shape[1:])) for name, x in states.items()}


def _latents_given(key: PRNGKeyArray, model: EBLVM, given: dict[str, Any], states: State) -> State:
    """Draw h of each chain given its v: exactly if that is quick, else by a chain of h alone from its `states`."""
    targets, chains = states["v"].shape[:2]
    rows = lambda x: x.reshape(-1, *x.shape[2:])
    v, context = states["v"], jax.tree.map(lambda x: jnp.repeat(x, chains, axis=0), given.get("context"))
    v = rows(v if "mask" not in given else Held(given["mask"][:, None], given["known"][:, None]).hold(v))
    few = model.h.count is not None and model.h.count <= MAX_SUMMED
    if few or isinstance(model, TractableEBLVM):
        h, _ = sample_posterior_exactly(key, model, v, 1, context)
        drawn = latent_states(model.h, jax.tree.map(lambda x: x[:, 0], h))
    else:
        begin = {name: rows(states[name])[:, None] for name in latents(model.h)}
        job = Job(model, {"features": features_of(model, v, context)}, begin, 1)
        drawn = jax.tree.map(lambda x: x[0, :, 0], _OF_LATENTS.run(key, job).states)
    return jax.tree.map(lambda x: x.reshape(targets, chains, *x.shape[1:]), drawn)
