"""How far q(h | v) is from the model's posterior: the gaps whose roots bound the biases of VaES and VaGES.

    Fisher   ½ E_q ‖∇_h log q(h | v) − ∇_h log p(h | v)‖², for continuous h (Theorems 3 and 4)
    KL       KL(q(h | v) ‖ p(h | v)), where the posterior has a closed form (Theorems 1 and 2)
    KSD      of samples against p(h | v), for continuous h: it needs no density of the samples, and so can say whether
             the Langevin corrector moves them towards the posterior

All are computable since ∇_h log p(h | v) = ∇_h log p̃(v, h). They are means over v, with standard errors.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from vages.checks import check_inputs
from vages.distributions import Bernoulli, Distribution, Gaussian
from vages.estimators import vaes
from vages.evaluation.estimate import Estimate
from vages.evaluation.kernels import IMQ, median_distance, stein_kernel
from vages.models import EBLVM, TractableEBLVM, encode
from vages.posteriors import Corrector, Posterior, fisher, infer

_BLOCK = 64  # v whose samples are in memory together


class PosteriorGap(NamedTuple):
    """Gaps of q, each None where it cannot be computed.

    `vaes_bias` is ‖E_q VaES(v) − ∇ log p(v)‖² itself, where the model's score is known. `ksd` and `corrected_ksd` are
    those of samples as q draws them and after the corrector.
    """

    fisher: Estimate | None
    kl: Estimate | None
    vaes_bias: Estimate | None
    ksd: Estimate | None
    corrected_ksd: Estimate | None
    n: int

    def meaning(self) -> str:
        """What the numbers say of the bias, in one sentence."""
        name, gap, theorems = ("KL", self.kl, "1 and 2") if self.fisher is None else ("Fisher", self.fisher, "3 and 4")
        if gap is None:
            return "Nothing is known of the bias: the posterior has no density to compare with, and no closed form."
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
) -> PosteriorGap:
    """The gaps of q at a batch of v, from `samples` draws of h at each."""
    check_inputs(model, v)
    if model.h.size == 0:
        raise ValueError("model: expected latents, got a model without; it has no posterior")
    if samples < 4:
        raise ValueError(f"samples: expected at least 4 draws of h for each v, got {samples}")
    q = eqx.filter_eval_shape(infer, model, posterior, v[:1])
    if corrector is not None and not q.continuous:
        raise TypeError(
            f"corrector: expected a posterior over continuous h, got {type(q).__name__}; leave the corrector out"
        )
    block = min(len(v), _BLOCK)
    parts = []
    for i, first in enumerate(range(0, len(v), block)):
        rows = np.minimum(np.arange(first, first + block), len(v) - 1)  # equal blocks: one program for all
        gaps = _gaps(jax.random.fold_in(key, i), model, posterior, v[rows], corrector, samples=samples)
        parts.append({name: values[: len(v) - first] for name, values in gaps.items()})
    values = {name: Estimate.of(jnp.concatenate([part[name] for part in parts])) for name in parts[0]}
    return PosteriorGap(**{name: values.get(name) for name in PosteriorGap._fields[:-1]}, n=len(v))


def kl_divergence(q: Distribution, p: Distribution) -> Float[Array, ""] | None:
    """KL(q ‖ p) of Bernoullis, or of diagonal Gaussians; None of others."""
    if isinstance(q, Bernoulli) and isinstance(p, Bernoulli):
        rest = jax.nn.softplus(p.logits) - jax.nn.softplus(q.logits)
        return jnp.sum(q.mean * (q.logits - p.logits) + rest)
    if isinstance(q, Gaussian) and isinstance(p, Gaussian):
        ratio = q.variance / p.variance
        return 0.5 * jnp.sum((q.mean - p.mean) ** 2 / p.variance + ratio - 1 - jnp.log(ratio))
    return None


@eqx.filter_jit
def _gaps(
    key: PRNGKeyArray, model: EBLVM, posterior: Posterior, v: Array, corrector: Corrector | None, *, samples: int
) -> dict[str, Float[Array, "n"]]:
    with jax.default_matmul_precision("float32"):
        for_samples, for_corrector = jax.random.split(key)
        encoding = encode(model, v)
        features, q = encoding.features, infer(model, posterior, encoding)
        h, gaps = q.sample(for_samples, samples), {}
        if q.continuous:
            gaps["fisher"] = fisher.of_samples(model, q, features, h)
            bandwidth = jax.vmap(lambda h: median_distance(h.reshape(samples, -1)))(h)
            gaps["ksd"] = _ksd(model, features, h, bandwidth)
            if corrector is not None:
                h_corrected = corrector(for_corrector, model, features, h)
                gaps["corrected_ksd"] = _ksd(model, features, h_corrected, bandwidth)
        if isinstance(model, TractableEBLVM):
            p = jax.vmap(model.posterior)(features)
            closed = jax.vmap(kl_divergence)(q, p)
            gaps |= {} if closed is None else {"kl": closed}
            gaps["vaes_bias"] = _square_bias(model, v, h)
        return gaps


def _ksd(model: EBLVM, features: Any, h: Array, bandwidth: Float[Array, "n"]) -> Float[Array, "n"]:
    """The U-statistic of KSD between the samples at each v and p(h | v)."""

    def one(features, h, bandwidth):
        count = len(h)
        force = jax.vmap(jax.grad(lambda h: model.log_joint(features, h)))(h).reshape(count, -1)
        flat = h.reshape(count, -1)
        x, s = (flat - jnp.mean(flat, axis=0, keepdims=True)) / bandwidth, bandwidth * force
        u = stein_kernel(IMQ(), x, s, x, s)
        return (jnp.sum(u) - jnp.trace(u)) / (bandwidth**2 * count * (count - 1))

    return jax.vmap(one)(features, h, bandwidth)


def _square_bias(model: TractableEBLVM, v: Array, h: Array) -> Float[Array, "n"]:
    """‖E_q VaES − score‖² without bias: the product of the errors of two independent halves of the samples."""
    score, encoding = jax.vmap(model.score)(v), encode(model, v)
    half = h.shape[1] // 2
    first, second = (vaes(model, encoding, part) - score for part in (h[:, :half], h[:, half:]))
    return jnp.sum((first * second).reshape(len(v), -1), axis=1)
