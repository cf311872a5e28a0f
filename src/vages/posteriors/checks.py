"""Checks, from shapes alone, that a model and a posterior are valid and fit each other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vages.checks import check_features, check_kind, check_log_joint, check_number, on_shapes, with_keys
from vages.distributions import Bernoulli, Distribution, Gaussian, Joint, OneHot
from vages.domains import Binary, Categorical, Domain, Empty, Product, Real
from vages.models import EBLVM
from vages.models.mixed import dtype_of, is_narrow
from vages.posteriors.exact import Listed
from vages.posteriors.learnt import check_reads_context
from vages.posteriors.posterior import Posterior

_POSTERIORS = {
    Real: "GaussianPosterior",
    Binary: "BernoulliPosterior",
    Categorical: "CategoricalPosterior",
    Product: "JointPosterior with one for each",
}


def fits(q: Distribution, domain: Domain) -> bool:
    """Whether q is a distribution over this domain. Of a custom distribution, only `continuous` is compared."""
    known = {Gaussian: Real, Bernoulli: Binary, OneHot: Categorical}
    if isinstance(domain, Empty):
        return True
    if isinstance(domain, Product):
        parts = dict(domain.parts)
        return isinstance(q, Listed) or (
            isinstance(q, Joint)
            and set(q.parts) == set(parts)
            and all(fits(q.parts[name], parts[name]) for name in parts)
        )
    return isinstance(domain, known[type(q)]) if type(q) in known else q.continuous == domain.continuous


def check_contract(model: EBLVM, posterior: Posterior, context: Any = None) -> Distribution:
    """Raise unless these work at one example v of the domain `model.v`:

        features(v) -> f
        posterior(model, f, v) -> q     over h of the domain `model.h`
        log_joint(f, h) -> scalar       at an h drawn from q, as is q.log_prob(h)

    Parameters are traced, as in training under `jit` and `vmap`. q is returned as shapes and dtypes. `context` is that
    of one example, as shapes and dtypes.
    """
    check_kind("posterior", posterior, Posterior, "a Posterior", "give vages.GaussianPosterior.linear(…), say")
    for name, domain in (("v", model.v), ("h", model.h)):
        check_kind(name, domain, Domain, "a domain of the model", "write Real(2) for a vector of two real numbers")
    dtype = dtype_of(model, posterior, np.zeros((), jnp.result_type(float)))
    v = jax.ShapeDtypeStruct(model.v.shape, jax.dtypes.canonicalize_dtype(dtype))
    context = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, v.dtype) if is_narrow(x) else x, context)
    features = check_features(model, v, context)
    q = _checked_posterior(model, posterior, features, v, context)
    mean, h, log_prob = on_shapes("posterior", "samples of q(h | v)", "correct its parameters' shapes", _drawn, q)
    for value in (mean, h):
        if (shape := jax.tree.map(lambda x: x.shape, value)) != model.h.shape:
            raise ValueError(
                f"posterior: expected h of {model.h!r}, of shape {model.h.shape}, got {shape} from "
                f"{type(posterior).__name__}; build it for that many latents, or correct the domain h"
            )
    check_number("log_prob", log_prob, "sum it over every axis")
    check_log_joint(model, features, h, context)
    return q


def _checked_posterior(model: EBLVM, posterior: Posterior, features: Any, v: Any, context: Any) -> Distribution:
    name = type(posterior).__name__
    expected, advice = f"{name} to take one v of shape {v.shape}{with_keys(context)}", "build it for this model"
    known = () if context is None else (context,)
    if known:
        check_reads_context(posterior)
    q = on_shapes("posterior", expected, advice, posterior, model, features, v, *known)
    check_kind("posterior", q, Distribution, f"a Distribution from {name}", "return vages.Gaussian(mean, log_std), say")
    if isinstance(q, Joint) and isinstance(model.h, Product):
        _check_parts(q, dict(model.h.parts))
    if not fits(q, model.h):
        raise TypeError(
            f"posterior: expected q of {model.h!r}, which {type(model).__name__} has as latents, got "
            f"{type(q).__name__}; use {_POSTERIORS.get(type(model.h), 'another')}"
        )
    return q


def _check_parts(q: Joint, domains: dict[str, Domain]) -> None:
    """Raise if the posterior of a latent is missing, superfluous or of another kind."""
    for key in sorted(set(q.parts) | set(domains)):
        wanted = f"one of {domains[key]!r}, as the latents have" if key in domains else "no such latent"
        if key not in q.parts or key not in domains or not fits(q.parts[key], domains[key]):
            got = type(q.parts[key]).__name__ if key in q.parts else "none"
            advice = _POSTERIORS.get(type(domains[key]), "another") if key in domains else f"only {sorted(domains)}"
            raise TypeError(f"posterior.parts[{key!r}]: expected {wanted}, got {got}; use {advice}")


def _drawn(q: Distribution) -> tuple[Any, Any, Any]:
    batch = jax.tree.map(lambda x: x[None], q)
    h = jax.tree.map(lambda x: x[0], batch.draw(jax.random.key(0)))
    return q.mean, h, q.log_prob(h)
