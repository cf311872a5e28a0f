"""Draws from a model at temperature 1, by a sampler that suits its variables."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from vages.checks import (
    check_context,
    check_count,
    check_energy,
    check_inputs,
    check_kind,
    named_parts,
    told,
)
from vages.domains import Empty
from vages.models import EBLVM, TractableEBLVM, features_of
from vages.models.mixed import cast
from vages.samplers.annealed import Annealed, sample_joint, sample_unconditional, sample_v
from vages.samplers.chains import Job
from vages.samplers.checks import as_rows, as_value, check_call, check_langevin, check_untraced, held_pixels
from vages.samplers.exact import can_list, sample_exactly, sample_posterior_exactly
from vages.samplers.gibbs import Gibbs, can_gibbs
from vages.samplers.heun import Heun
from vages.samplers.langevin import Held, chain_dtype
from vages.samplers.mcmc import MCMC
from vages.samplers.samples import Samples, check_drawn, diagnose, warn
from vages.samplers.starts import starts
from vages.samplers.target import State, assemble

Sampler = MCMC | Gibbs | Annealed | Heun

_CHAINS = 16  # enough that they rarely all start in one of two modes
_LEAST_DRAWS = 250  # per chain, for a meaningful R̂


def sample(
    key: PRNGKeyArray,
    model: EBLVM,
    n: int,
    *,
    chains: int | None = None,
    start: Any = None,
    h: Any = None,
    context: Any = None,
    held: Held | None = None,
    sampler: Sampler | None = None,
) -> Samples:
    """Draw n samples (v, h) ~ p(v, h), or v ~ p(v | h) if h is given.

    Draws are independent if closed forms allow it. Otherwise, Gibbs sampling is used if p(v | h) and p(h | v) are
    known, and NUTS if not (see `MCMC`). `sampler` overrides this: `MCMC`, `Gibbs`, the paper's `Annealed`, or `Heun`
    for a noise-conditional model.

    Chains (16, or `chains`) start far apart, or at `start`: v of each chain, with h drawn given v, or (v, h); for
    `Heun`, v of each draw at its highest level. Entries of v that are `held` are fixed, and the others are drawn given
    them. `h`, `context` and `held` are those of one example, shared by all draws (a context then has one row, or
    numbers), or have one row per draw. In that case, MCMC runs two chains with their own warm-up for each draw, at n
    times the cost.

    This function compiles its own programs, and cannot be called inside `jit` or `vmap`.
    """
    check_call(key, model)
    check_untraced(key=key, model=model, start=start, h=h, context=context, held=held)
    check_count("n", n, 1, "ask for at least one draw")
    n = int(n)  # compiled programs would turn NumPy's numbers into arrays
    context = as_rows(context)
    given, targets = _given(model, n, h, context, held)
    level = {"sigma": jnp.zeros(1)}  # added by Heun's method
    check_energy(model, chain_dtype(model), {**(context or {}), **level} if isinstance(sampler, Heun) else context)
    if sampler is None:
        plain = not given and start is None and chains is None
        if plain and hasattr(model, "draw"):
            v, h = model.draw(key, n)  # pyright: ignore[reportAttributeAccessIssue]
            return _independent(v, h, n)
        if plain and can_list(model):
            return _independent(*sample_exactly(key, model, n), n)
        only_held = not set(given) - {"mask", "known"} and targets == 1
        sampler = Gibbs() if can_gibbs(model) and only_held else MCMC()
    check_kind("sampler", sampler, Sampler, "a sampler", "write MCMC(), Gibbs(), Annealed() or Heun()")
    if isinstance(sampler, Heun):
        _refuse(sampler, chains=chains)
        begin = None if start is None else as_value("start", start, model.v, (n,))
        pixels = None if held is None else Held(given["mask"], given["known"])
        return sampler.draw(key, model, n, given.get("h"), given.get("context"), pixels, begin)
    if isinstance(sampler, Annealed):
        return _annealed(key, model, n, sampler, h, held, context=context, start=start, chains=chains)
    count = chains if chains is not None else 2 if targets > 1 else _CHAINS
    check_count("chains", count, 1, "leave it out for 16")
    samples, states = _run(key, model, given, (targets, int(count)), 1 if targets > 1 else n, start, sampler)
    states = jax.tree.map(lambda x: x[:, -1] if targets > 1 else x[0], states)
    if targets == 1:
        rhat, ess = ({name: x[0] for name, x in found.items()} for found in (samples.rhat, samples.ess))
        trace = jax.tree.map(lambda x: x[:, :, 0], samples.trace)
        samples = samples._replace(rhat=rhat, ess=ess, trace=trace)
    if "h" in given:
        h = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape[1:])), given["h"])
        return samples._replace(v=states["v"], h=h, draws=n)
    return samples._replace(v=states["v"], h=assemble(model.h, states, n), draws=n)


def sample_posterior(
    key: PRNGKeyArray,
    model: EBLVM,
    v: Array,
    samples: int = 100,
    *,
    context: Any = None,
    chains: int = _CHAINS,
    sampler: MCMC | None = None,
) -> Samples:
    """Draw h ~ p(h | v) for each v of a batch: h (batch, samples, …).

    Draws are exact if the posterior has a closed form or its states can be listed. Otherwise, or with a `sampler`,
    `chains` chains are run for each v, which is not possible inside `jit` or `vmap`.
    """
    check_call(key, model)
    check_inputs(model, v, context=context)
    check_energy(model, v.dtype, context)
    check_count("samples", samples, 1, "ask for at least one draw")
    check_count("chains", chains, 1, "give more")
    samples, chains = int(samples), int(chains)
    closed = isinstance(model, TractableEBLVM) or model.h.enumerable
    if isinstance(model.h, Empty) or (sampler is None and closed):
        h, proper = sample_posterior_exactly(key, model, v, samples, context)
        _check_proper(proper)
        return _independent(v, h, samples)
    check_untraced(key=key, model=model, v=v, context=context)
    sampler = MCMC() if sampler is None else sampler
    check_kind("sampler", sampler, MCMC, "a sampler of h", "write MCMC(kernel='hmc'), say")
    dtype = chain_dtype(model)
    given = {"features": features_of(model, jnp.asarray(v, dtype), cast(context, dtype))}
    result, states = _run(key, model, given, (len(v), chains), samples, None, sampler)
    return result._replace(v=v, h=assemble(model.h, states))


def _run(
    key: PRNGKeyArray,
    model: EBLVM,
    given: dict[str, Any],
    shape: tuple[int, int],
    kept: int,
    start: Any,
    sampler: MCMC | Gibbs,
) -> tuple[Samples, State]:
    """Run chains (targets, chains), and return their diagnostics and `kept` draws of each target (targets, kept, …)."""
    for_start, for_chains, for_h = jax.random.split(key, 3)
    begin = starts((for_start, for_h), model, given, shape, start)
    draws = max(-(-kept // shape[1]), _LEAST_DRAWS)
    drawn = sampler.run(for_chains, Job(model, given, begin, draws))
    trace = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), drawn.states)  # (targets, chains, draws, …)
    if "mask" in given:
        mask, known = (given[name][:, None, None] for name in ("mask", "known"))
        trace |= {"v": jnp.where(mask, known, trace["v"])}
    check_drawn(trace, drawn.log_prob)
    rhat, ess = diagnose(trace)
    samples = Samples(
        v=None,
        h=None,
        acceptance=float(jnp.mean(drawn.acceptance)),
        rhat=rhat,
        ess={name: jnp.asarray(np.minimum(x, np.float32(kept))) for name, x in ess.items()},
        diverged=int(np.sum(np.asarray(drawn.diverged))),
        gradients=int(np.sum(np.asarray(drawn.gradients, np.int64))),
        trace=jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2), trace),
        draws=kept,
    )
    swapped = None if drawn.swapped is None else float(jnp.mean(drawn.swapped))
    least = min(float(np.min(x)) for x in ess.values())
    warn(samples, swapped, chains=shape[1], ess=least, kept=kept)
    return samples, jax.tree.map(lambda x: _spread(x, kept), trace)


@partial(jax.jit, static_argnames="kept")
def _spread(x: Array, kept: int) -> Array:
    """Return `kept` of all draws (targets, chains, draws, …): those of every chain at evenly spaced steps."""
    targets, chains, draws = x.shape[:3]
    steps = -(-kept // chains)
    places = (np.arange(1, steps + 1) * draws) // steps - 1
    flat = jnp.swapaxes(x[:, :, places], 1, 2).reshape(targets, steps * chains, *x.shape[3:])
    return flat[:, -kept:]


def _given(model: EBLVM, n: int, h: Any, context: Any, held: Held | None) -> tuple[dict[str, Any], int]:
    """Return the fields of the targets along their first axis, and the number of targets: n, or 1 if shared by all."""
    dtype, given = chain_dtype(model), {}
    if held is not None:
        check_kind("held", held, Held, "Held(mask, known)", "write vages.Held(mask, known)")
        own = {np.shape(held.mask), np.shape(held.known)} == {model.v.shape}
        pixels = held_pixels(model, held.mask, held.known, 1 if own else n, dtype)
        assert pixels is not None
        given |= {"mask": pixels.mask, "known": pixels.known}
    if h is not None:
        parts = named_parts("h", h, model.h)
        own = np.ndim(parts[0][1]) == len(parts[0][2].shape)
        lead = () if own else (n,)
        rows = [as_value(name, value, domain, lead).astype(dtype) for name, value, domain in parts]
        tree = dict(zip(model.h.shape, rows, strict=True)) if isinstance(h, dict) else rows[0]
        given["h"] = jax.tree.map(lambda x: x[None], tree) if own else tree
    if context is not None:
        rows = {np.shape(x)[:1] for x in context.values()} if isinstance(context, dict) else set()
        check_context(context, 1 if rows == {(1,)} else n)
        given["context"] = cast(context, dtype)
    sizes = {len(x) for x in jax.tree.leaves(given)}
    if len(sizes) > 1:
        given = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape[1:])), given)
    return given, max(sizes, default=1)


def _check_proper(proper: Array) -> None:
    """Raise ValueError if an example has no posterior. Under `jit`, this is not checked."""
    if not isinstance(proper, Tracer) and not np.all(proper):
        row = int(np.argmin(np.asarray(proper)))
        raise ValueError(
            f"v: expected a finite energy for some h and NaN for none, got others in row {row}; correct the energy"
        )


def _independent(v: Array, h: Any, n: int) -> Samples:
    return Samples(v, h, acceptance=1.0, rhat={}, ess={}, diverged=0, gradients=0, draws=n)


def _annealed(
    key: PRNGKeyArray, model: EBLVM, n: int, sampler: Annealed, h: Any, held: Held | None, **others: Any
) -> Samples:
    """Run n chains of the paper's sampler, and return their final states."""
    _refuse(sampler, **others)
    check_langevin(model)
    pixels: dict[str, Any] = {} if held is None else {"mask": held.mask, "known": held.known}
    if h is not None:
        if sampler.latents is not None:
            raise TypeError(f"latents: expected none beside h, got {told(sampler.latents)}; leave one of them out")
        h = jnp.broadcast_to(h, (n, *model.h.shape)) if jnp.ndim(h) == len(model.h.shape) else h
        ends = sample_v(key, model, h, sampler.schedule, **pixels)
    elif sampler.latents is not None:
        ends = sample_unconditional(key, model, n, sampler.schedule, latents=sampler.latents, **pixels)
    else:
        ends = sample_joint(key, model, n, sampler.schedule, **pixels)
    steps = sampler.schedule.steps + (sampler.schedule.denoise is not None)
    diverged = int(jnp.sum(ends.diverged))
    return Samples(ends.v, ends.h, acceptance=1.0, rhat={}, ess={}, diverged=diverged, gradients=n * steps, draws=n)


def _refuse(sampler: Sampler, **options: Any) -> None:
    """Raise TypeError if an option is given that the sampler does not have."""
    name = type(sampler).__name__
    for option, value in options.items():
        if value is not None:
            raise TypeError(f"{option}: expected none for {name}, got {told(value)}; leave it out, or use MCMC()")
