"""Divergences of q(h | v) from the model's posterior. Their square roots bound the biases of VaES and VaGES.

    Fisher   ½ E_q ‖∇_h log q(h | v) − ∇_h log p(h | v)‖², for continuous h (Theorems 3 and 4)
    KL       KL(q(h | v) ‖ p(h | v)), if the posterior has a closed form, or h few states (Theorems 1 and 2)
    KSD      between samples and p(h | v), for continuous h: it does not need the density of the samples, and so
             measures whether the Langevin corrector moves them toward the posterior

Fisher and KSD use ∇_h log p(h | v) = ∇_h log p̃(v, h). All are means over v, with standard errors.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_inputs, check_own_context, shapes_of_one
from vages.distributions import Bernoulli, Distribution, Gaussian, check_key
from vages.domains import MAX_STATES
from vages.estimators import vaes
from vages.evaluation.estimate import Estimate
from vages.evaluation.kernels import IMQ, median_distance, stein_kernel
from vages.evaluation.scores import ExactScore
from vages.models import EBLVM, Encoding, TractableEBLVM, encode, log_joints, log_marginal
from vages.posteriors import Corrector, Posterior, check_contract, fisher, infer

_BLOCK = 64  # number of v whose samples are in memory at once
_STATES = 2**12  # states whose log-probabilities are computed at once


class PosteriorGap(NamedTuple):
    """Gaps of q, each None where it cannot be computed.

    `vaes_bias` is ‖E_q VaES(v) − ∇ log p(v)‖². It is estimated from samples if the model is tractable. Otherwise, for h
    with few states, it is an exact sum, for q at temperature 0. `ksd` is for samples of q, `corrected_ksd` for the same
    samples after the corrector.
    """

    fisher: Estimate | None
    kl: Estimate | None
    vaes_bias: Estimate | None
    ksd: Estimate | None
    corrected_ksd: Estimate | None
    n: int

    def meaning(self) -> str:
        """Describe what the gaps imply for the bias."""
        name, gap, theorems = ("KL", self.kl, "1 and 2") if self.fisher is None else ("Fisher", self.fisher, "3 and 4")
        if gap is None:
            return (
                "Nothing is known of the bias: Fisher needs every latent continuous, and KL a closed form or at most "
                f"{MAX_STATES} states of h. Mixed latents with a continuous part have neither; the mean of vages.kl, "
                "which is KL up to log p̃(v), still says which of two posteriors is nearer."
            )
        said = (
            f"By Theorems {theorems} the biases of VaES and VaGES are at most constants of the model times "
            f"√{name} = {max(gap.mean, 0.0) ** 0.5:.3g}: four times less gap halves the bound"
        )
        if self.ksd is None or self.corrected_ksd is None or self.ksd.mean <= 0:
            return said + "."
        return said + f"; the corrector leaves {self.corrected_ksd.mean / self.ksd.mean:.0%} of the samples' KSD."


def posterior_gap(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior,
    v: Array,
    *,
    samples: int = 64,
    corrector: Corrector | None = None,
    context: Any = None,
) -> PosteriorGap:
    """Compute the gaps of q at a batch of v, with its `context` if the model has one, from `samples` draws of h each.

    Discrete h with at most 2²⁰ states are enumerated instead, unless their KL has a closed form.
    """
    check_key(key)
    check_inputs(model, v, context=context)
    check_contract(model, posterior, *shapes_of_one(v, context)[1:])
    check_own_context(context, posterior)
    if model.h.size == 0:
        raise ValueError("model: expected latents, got a model without; it has no posterior")
    if samples < 4:
        raise ValueError(f"samples: expected at least 4 draws of h for each v, got {samples}")
    some = lambda rows: (v[rows], None if context is None else jax.tree.map(lambda x: x[rows], context))
    if corrector is not None:
        corrector.check(model)
    block = min(len(v), _BLOCK)
    parts = []
    for i, first in enumerate(range(0, len(v), block)):
        rows = np.minimum(np.arange(first, first + block), len(v) - 1)  # equal blocks, so that it compiles once
        gaps = _gaps(jax.random.fold_in(key, i), model, posterior, *some(rows), corrector, samples=samples)
        parts.append({name: values[: len(v) - first] for name, values in gaps.items()})
    values = {name: Estimate.of(jnp.concatenate([part[name] for part in parts])) for name in parts[0]}
    return PosteriorGap(**{name: values.get(name) for name in PosteriorGap._fields[:-1]}, n=len(v))


def kl_divergence(q: Distribution, p: Distribution) -> Float[Array, ""] | None:
    """Return KL(q ‖ p) of Bernoulli variables or of diagonal Gaussians, and None for others."""
    if isinstance(q, Bernoulli) and isinstance(p, Bernoulli):
        rest = jax.nn.softplus(p.logits) - jax.nn.softplus(q.logits)
        return jnp.sum(q.mean * (q.logits - p.logits) + rest)
    if isinstance(q, Gaussian) and isinstance(p, Gaussian):
        ratio = q.variance / p.variance
        return 0.5 * jnp.sum((q.mean - p.mean) ** 2 / p.variance + ratio - 1 - jnp.log(ratio))
    return None


@eqx.filter_jit
def _gaps(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior,
    v: Array,
    context: Any,
    corrector: Corrector | None,
    *,
    samples: int,
) -> dict[str, Float[Array, "n"]]:
    with jax.default_matmul_precision("float32"):
        for_samples, for_corrector = jax.random.split(key)
        encoding = encode(model, v, context)
        features, q = encoding.features, infer(model, posterior, encoding)
        h, gaps = q.sample(for_samples, samples), {}
        if q.continuous:
            gaps["fisher"] = fisher.of_samples(model, q, features, h)
            bandwidth = jax.vmap(lambda h: median_distance(_rows(h)))(h)
            gaps["ksd"] = _ksd(model, features, h, bandwidth)
            if corrector is not None:
                h_corrected = corrector(for_corrector, model, features, h)
                gaps["corrected_ksd"] = _ksd(model, features, h_corrected, bandwidth)
        if isinstance(model, TractableEBLVM):
            p = jax.vmap(model.posterior)(features)
            closed = jax.vmap(kl_divergence)(q, p)
            gaps |= {} if closed is None else {"kl": closed}
            gaps |= {"vaes_bias": _square_bias(model, encoding, h)} if model.v.continuous else {}
        if "kl" not in gaps and not q.continuous and model.h.enumerable:
            gaps = _by_enumeration(model, q.hard(), encoding) | gaps
        return gaps


def _by_enumeration(model: EBLVM, q: Distribution, encoding: Encoding) -> dict[str, Float[Array, "n"]]:
    """Return KL and, for continuous v, the squared bias of VaES, by sums over all states of h."""
    count, dtype = model.h.count or 1, encoding.v.dtype
    states = model.h.states(dtype)

    def one(inputs):
        q, features = inputs
        log_q = jax.lax.map(q.log_prob, states, batch_size=min(count, _STATES))
        q_of = jnp.exp(log_q)
        expected = lambda values: jnp.sum(q_of * jnp.where(q_of > 0, values, 0.0))
        # log p̃(v) − E_q log p̃(v, h), whose gradient in v is the score minus the mean of VaES
        rest = lambda features: log_marginal(model, features, dtype) - expected(log_joints(model, features, dtype))
        value, slope = jax.value_and_grad(rest, allow_int=True)(features)
        return expected(log_q) + value, slope

    kl, slopes = jax.lax.map(one, (q, encoding.features), batch_size=max(1, _STATES // count))
    if not model.v.continuous:
        return {"kl": kl}
    return {"kl": kl, "vaes_bias": jnp.sum(encoding.pullback(slopes)[0].reshape(len(kl), -1) ** 2, axis=1)}


def _rows(h: Any) -> Float[Array, "samples dim"]:
    """Return samples as rows of numbers, those of a dict side by side."""
    return jax.vmap(lambda h: ravel_pytree(h)[0])(h)


def _ksd(model: EBLVM, features: Any, h: Any, bandwidth: Float[Array, "n"]) -> Float[Array, "n"]:
    """Return the U-statistic of KSD between the samples at each v and p(h | v)."""

    def one(features, h, bandwidth):
        flat, force = _rows(h), _rows(jax.vmap(jax.grad(lambda h: model.log_joint(features, h)))(h))
        count = len(flat)
        x, s = (flat - jnp.mean(flat, axis=0, keepdims=True)) / bandwidth, bandwidth * force
        u = stein_kernel(IMQ(), x, s, x, s)
        return (jnp.sum(u) - jnp.trace(u)) / (bandwidth**2 * count * (count - 1))

    return jax.vmap(one)(features, h, bandwidth)


def _square_bias(model: TractableEBLVM, encoding: Encoding, h: Any) -> Float[Array, "n"]:
    """Estimate ‖E_q VaES − score‖² without bias, by the product of the errors of two independent halves of samples."""
    score = ExactScore(model)(None, encoding.v, encoding.context)
    half = jax.tree.leaves(h)[0].shape[1] // 2
    halves = (jax.tree.map(lambda x, part=part: x[:, part], h) for part in (slice(half), slice(half, None)))
    first, second = (vaes(model, encoding, part) - score for part in halves)
    return jnp.sum((first * second).reshape(len(score), -1), axis=1)
