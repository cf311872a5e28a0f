"""Scores ∇_v log p(v) for the functions of this package: from a function, or by VaES.

    score(model)                         exact, if h can be summed or integrated out
    score(model, posterior)              VaES (Eq. 7), with fresh samples of q(h | v) at each call
    model.score                          or any other function of one example

With samples of the exact posterior, VaES is unbiased at each v, and its noise is independent between examples.
Statistics that are linear in the score of each example, as in the Stein tests, then remain unbiased.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.checks import (
    check_count,
    check_energy,
    check_finite,
    check_has_score,
    check_inputs,
    check_kind,
    check_numbers,
    check_some,
    struct_of,
)
from vages.distributions import check_key
from vages.estimators import vaes
from vages.evaluation.densities import exact_log_density, has_exact_density
from vages.models import EBLVM, Encoding, encode
from vages.posteriors import Corrector, ExactPosterior, Posterior, infer

NUMBERS = 2**18  # numbers of v processed at once; a network's layers may hold a hundred times as many


class VariationalScore(eqx.Module):
    """VaES with `samples` draws of q(h | v) for each v, moved toward p(h | v) by the `corrector` if there is one.

    For a model without latents, use `ExactPosterior()`: its only state is empty, and the score is exact.
    """

    model: EBLVM
    posterior: Posterior
    samples: int = eqx.field(static=True, default=1)
    corrector: Corrector | None = eqx.field(static=True, default=None)

    __hash__ = object.__hash__  # `jit` requires hashable functions
    __eq__ = object.__eq__

    def __check_init__(self):
        check_has_score("score", self.model)
        check_count("samples", self.samples, 1, "one will do")
        if self.corrector is not None:
            self.corrector.check(self.model)

    def __call__(self, key: PRNGKeyArray | None, v: Array | Encoding, context: Any = None) -> Array:
        """Return the score at one v, at each v of a batch, or of an encoding."""
        if not isinstance(v, Encoding):
            check_numbers("v", v)
        if not isinstance(v, Encoding) and v.ndim == len(self.model.v.shape):
            return self(key, v[None], jax.tree.map(lambda x: jnp.asarray(x)[None], context))[0]
        if not isinstance(v, Encoding):
            check_inputs(self.model, v, context=context)
        if key is None:
            raise ValueError("key: expected a key, because VaES draws samples of h, got None; give one")
        check_key(key)
        for_q, for_corrector = jax.random.split(key)
        encoding = encode(self.model, v, context)
        h = infer(self.model, self.posterior, encoding).sample(for_q, self.samples)
        if self.corrector is not None:
            h = self.corrector(for_corrector, self.model, encoding.features, h)
        return vaes(self.model, encoding, h)


class ExactScore(eqx.Module):
    """The exact ∇_v log p̃(v), with the interface of `VariationalScore`. The key may be None."""

    model: EBLVM

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __check_init__(self):
        check_has_score("score", self.model)
        if not has_exact_density(self.model):
            raise TypeError(
                f"posterior: expected one, because the states of {self.model.h!r} cannot be summed, got None; "
                "learn one, and give it"
            )

    def __call__(self, key: PRNGKeyArray | None, v: Array, context: Any = None) -> Array:
        """Return the score at one v, or at each v of a batch."""
        check_numbers("v", v)
        if v.ndim == len(self.model.v.shape):
            return self(key, v[None], jax.tree.map(lambda x: jnp.asarray(x)[None], context))[0]
        check_inputs(self.model, v, context=context)
        check_energy(self.model, v.dtype, context)
        one = jax.grad(lambda v, *known: exact_log_density(self.model, v, *known))
        return jax.vmap(one)(v) if context is None else jax.vmap(one)(v, context)


def score(model: EBLVM, posterior: Posterior | None = None, samples: int = 16) -> "VariationalScore | ExactScore":
    """Return the score ∇_v log p(v) as a function of (key, v, context), where v is one example or a batch.

    Without a posterior, or with `ExactPosterior()` if h can be summed or integrated out, it is exact, and the key may
    be None. Otherwise it is VaES with `samples` draws of h. It works inside `jit`, `vmap` and `grad`.
    """
    if posterior is None or (isinstance(posterior, ExactPosterior) and has_exact_density(model)):
        return ExactScore(model)
    return VariationalScore(model, posterior, samples)


class FunctionScore(eqx.Module):
    """A function of one example, called with a key, which is ignored, and a batch."""

    function: Callable[[Array], Array]

    def __call__(self, key: PRNGKeyArray, v: Array) -> Array:
        """Return the score at each v of a batch."""
        return jax.vmap(self.function)(v)


Score = VariationalScore | ExactScore | Callable[[Array], Array]


def as_score(score: Score) -> VariationalScore | FunctionScore:
    """Convert a score to a function of a key and a batch. Raise TypeError for a model or anything else."""
    if isinstance(score, EBLVM):
        raise TypeError(
            f"score: expected a score, got the model {type(score).__name__}; give vages.score(model), or "
            "vages.score(model, posterior)"
        )
    check_kind("score", score, Callable, "a function of one example", "give vages.score(model), say")
    if isinstance(score, ExactScore):
        return FunctionScore(eqx.Partial(score, None))
    return score if isinstance(score, VariationalScore | FunctionScore) else FunctionScore(score)


def score_batch(key: PRNGKeyArray | None, score: Score, v: Array) -> Array:
    """Return the score at each v, in blocks of bounded memory. The key may be None if the score is a function."""
    check_numbers("v", v, floating=False)
    own = as_score(score)
    check_score(own, v)
    check_some("v", v)
    if key is None:
        if isinstance(own, VariationalScore):
            raise ValueError("key: expected a key, because VaES draws samples of h, got None; give one")
        key = jax.random.key(0)
    check_key(key)
    block = max(1, min(len(v), NUMBERS // max(v[0].size, 1)))
    parts = []
    for i, first in enumerate(range(0, len(v), block)):
        rows = np.minimum(np.arange(first, first + block), len(v) - 1)  # equal blocks, so that it compiles once
        parts.append(_scores(jax.random.fold_in(key, i), own, v[rows]))
    return jnp.concatenate(parts)[: len(v)]


@eqx.filter_jit
def _scores(key: PRNGKeyArray, score: Any, v: Array) -> Array:
    with jax.default_matmul_precision("float32"):  # by default, GPUs and TPUs may use lower precision
        return score(key, v)


def check_score(score: VariationalScore | FunctionScore, v: Array) -> None:
    """Raise ValueError unless the score accepts such examples and has their shape."""
    if isinstance(score, VariationalScore):
        check_inputs(score.model, v)
        return
    one = struct_of(v, drop=1)
    try:
        shape = eqx.filter_eval_shape(score.function, one).shape
    except (TypeError, ValueError, AttributeError) as error:
        why = str(error).splitlines()[0]
        raise ValueError(
            f"score: expected a function of one example of shape {one.shape}, got one that fails there ({why}); "
            "do model and data have the same dimension?"
        ) from None
    if shape != one.shape:
        raise ValueError(f"score: expected the shape of an example, {one.shape}, got {shape}; are they of one model?")


def check_examples(name: str, v: Array, least: int) -> None:
    """Raise unless v is a batch of at least `least` examples, finite, and not all the same."""
    check_numbers(name, v, floating=False)
    if v.ndim < 2 or not jnp.issubdtype(v.dtype, jnp.floating):
        raise ValueError(f"{name}: expected floating examples of shape (n, …), got {v.dtype}{list(v.shape)}")
    if len(v) < least:
        raise ValueError(f"{name}: expected at least {least} examples, got {len(v)}; give more")
    check_finite(name, v)
    if bool(jnp.all(v == v[:1])):
        raise ValueError(f"{name}: expected examples that differ, got {len(v)} times the same; is the data constant?")
