"""Whether a model and a posterior keep their contracts and fit each other, seen from shapes before training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.distributions import Bernoulli, Distribution, Gaussian, OneHot
from vages.domains import Binary, Categorical, Domain, Empty, Real
from vages.models import EBLVM
from vages.models.checks import check_features, check_kind, check_log_joint, check_number, on_shapes
from vages.models.mixed import dtype_of
from vages.posteriors.posterior import Posterior

_POSTERIORS = {Real: "GaussianPosterior", Binary: "BernoulliPosterior", Categorical: "CategoricalPosterior"}


def fits(q: Distribution, domain: Domain) -> bool:
    """Whether q is a distribution over such a variable; a distribution of one's own by its being continuous or not."""
    known = {Gaussian: Real, Bernoulli: Binary, OneHot: Categorical}
    if isinstance(domain, Empty):
        return True
    return isinstance(domain, known[type(q)]) if type(q) in known else q.continuous == domain.continuous


def check_contract(model: EBLVM, posterior: Posterior) -> Distribution:
    """Raise unless at one example v of the domain `model.v` there are

        features(v) -> f
        posterior(model, f, v) -> q     over h of the domain `model.h`
        log_joint(f, h) -> scalar       at an h drawn from q, as is q.log_prob(h)

    The parameters are traced, as in training, so that it is the same under `jit` and `vmap`. q comes back as shapes and
    dtypes.
    """
    for name, domain in (("v", model.v), ("h", model.h)):
        check_kind(name, domain, Domain, "a domain of the model", "write Real(2) for a vector of two real numbers")
    dtype = dtype_of(model, posterior, np.zeros((), jnp.result_type(float)))
    v = jax.ShapeDtypeStruct(model.v.shape, jax.dtypes.canonicalize_dtype(dtype))
    features = check_features(model, v)
    q = _checked_posterior(posterior, model, features, v)
    mean, h, log_prob = on_shapes("posterior", "samples of q(h | v)", "mend its parameters' shapes", _drawn, q)
    for shape in (mean.shape, h.shape):
        if shape != model.h.shape:
            raise ValueError(
                f"posterior: expected h of {model.h!r}, of shape {model.h.shape}, got {shape} from "
                f"{type(posterior).__name__}; build it for that many latents, or mend the domain h"
            )
    check_number("log_prob", log_prob, "sum it over every axis")
    check_log_joint(model, features, h)
    return q


def _checked_posterior(posterior: Posterior, model: EBLVM, features: Any, v: Any) -> Distribution:
    name = type(posterior).__name__
    expected, advice = f"{name} to take one v of shape {v.shape}", "build it for this model"
    q = on_shapes("posterior", expected, advice, posterior, model, features, v)
    check_kind("posterior", q, Distribution, f"a Distribution from {name}", "return vages.Gaussian(mean, log_std), say")
    if not fits(q, model.h):
        raise TypeError(
            f"posterior: expected q of {model.h!r}, which {type(model).__name__} has as latents, got "
            f"{type(q).__name__}; use {_POSTERIORS[type(model.h)]}"
        )
    return q


def _drawn(q: Distribution) -> tuple[Array, Array, Any]:
    h = q.transform(q.noise(jax.random.key(0), q.mean.shape))
    return q.mean, h, q.log_prob(h)
