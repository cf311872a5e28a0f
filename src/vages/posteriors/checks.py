"""Whether a model and a posterior keep their contracts and fit each other, seen from shapes before training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vages.distributions import Distribution
from vages.models import EBLVM, TractableEBLVM
from vages.models.checks import check_features, check_kind, check_log_joint, check_number, check_shape, on_shapes
from vages.models.mixed import dtype_of
from vages.posteriors.posterior import Posterior


def check_contract(model: EBLVM, posterior: Posterior) -> Distribution:
    """Raise unless at one example v of `v_shape` there are

        features(v) -> f
        posterior(model, f, v) -> q     over h of `h_shape`, binary or continuous as p(h | v) is where that is known
        log_joint(f, h) -> scalar       at an h drawn from q, as is q.log_prob(h)

    The parameters are traced, as in training, so that it is the same under `jit` and `vmap`. q comes back as shapes and
    dtypes.
    """
    check_shape("v_shape", model.v_shape)
    check_shape("h_shape", model.h_shape)
    dtype = dtype_of(model, posterior, np.zeros((), jnp.result_type(float)))
    v = jax.ShapeDtypeStruct(model.v_shape, jax.dtypes.canonicalize_dtype(dtype))
    features = check_features(model, v)
    q = _checked_posterior(posterior, model, features, v)
    mean, h, log_prob = on_shapes("posterior", "samples of q(h | v)", "mend its parameters' shapes", _drawn, q)
    for shape in (mean.shape, h.shape):
        if shape != model.h_shape:
            raise ValueError(
                f"posterior: expected h of the model's shape {model.h_shape}, got {shape} from "
                f"{type(posterior).__name__}; build it for that many latents, or mend h_shape"
            )
    check_number("log_prob", log_prob, "sum it over every axis")
    check_log_joint(model, features, h)
    return q


def _checked_posterior(posterior: Posterior, model: EBLVM, features: Any, v: Any) -> Distribution:
    name = type(posterior).__name__
    expected, advice = f"{name} to take one v of shape {v.shape}", "build it for this model"
    q = on_shapes("posterior", expected, advice, posterior, model, features, v)
    check_kind("posterior", q, Distribution, f"a Distribution from {name}", "return vages.Gaussian(mean, log_std), say")
    if isinstance(model, TractableEBLVM):
        expected, advice = "p(h | v) from the features of one v", "write it for one example"
        p = on_shapes("model.posterior", expected, advice, model.posterior, features)
        if q.continuous != p.continuous:
            kind, use = ("continuous", "Gaussian") if p.continuous else ("binary", "Bernoulli")
            raise TypeError(
                f"posterior: expected {kind} h, as {type(model).__name__} has them, got {type(q).__name__}; "
                f"use {use}Posterior"
            )
    return q


def _drawn(q: Distribution) -> tuple[Array, Array, Any]:
    h = q.transform(q.noise(jax.random.key(0), q.mean.shape))
    return q.mean, h, q.log_prob(h)
