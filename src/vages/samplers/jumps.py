"""Jumps between the modes of discrete latents: h changes, and the continuous variables are shifted with it.

The warm-up regresses the continuous variables on the discrete latents, x ≈ a + B h. A jump proposes h', which differs
from h in one choice, and x + B (h' − h). Shifts preserve volume and the proposal of h' is symmetric, so acceptance
depends on the ratio of p̃ alone (Metropolis et al. 1953), and the target is invariant for any B. If p(v | h) only shifts
with h, by B h, the ratio is p(h') / p(h).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from vages.domains import Binary
from vages.samplers.target import State, Target

TRIES = 5  # jumps between two moves; each costs one evaluation of the energy
MAX_LATENTS = 256  # size of h above which the regression costs more than it gains
_RIDGE = 1e-3


class Regression(NamedTuple):
    """Sums of products of (1, h) and x over all chains, and the latest solution B."""

    square: Float[Array, "h h"]
    cross: Float[Array, "h x"]
    slope: Float[Array, "h x"]

    def add(self, h: Float[Array, "chains h"], x: Float[Array, "chains x"]) -> "Regression":
        """Return the regression with the states of all chains added."""
        one = jnp.concatenate([jnp.ones((len(h), 1), h.dtype), h], axis=1)
        return self._replace(square=self.square + one.T @ one, cross=self.cross + one.T @ x)

    def solve(self) -> "Regression":
        """Return the regression with B solved from all states that were added."""
        ridge = _RIDGE * jnp.maximum(self.square[0, 0], 1) * jnp.eye(len(self.square), dtype=self.square.dtype)
        return self._replace(slope=jnp.linalg.solve(self.square + ridge, self.cross)[1:])


def start_regression(latents: int, size: int, dtype: Any) -> Regression:
    """Return the regression before any states are added, with B = 0."""
    zeros = lambda *shape: jnp.zeros(shape, dtype)
    return Regression(zeros(latents + 1, latents + 1), zeros(latents + 1, size), zeros(latents, size))


def can_jump(target: Target) -> bool:
    """Whether there are discrete latents to change, and continuous variables to shift with them."""
    size = sum(domain.size for domain in target.discrete.values())
    return bool(target.continuous) and 0 < size <= MAX_LATENTS and "v" not in target.discrete


def jump(
    key: PRNGKeyArray, target: Target, slope: Float[Array, "h x"], continuous: State, discrete: State, beta: Any = None
) -> tuple[State, State]:
    """Try a few jumps in sequence, for the target's density to the power β (1 if not given).

    The first is skipped with probability 1/2, since an even number of accepted flips of the same bit cancels out.
    """
    places, whole = _places(target), target.whole()

    def density(x, h):
        """Return log p̃(x, h)^β or, if h is summed out, log p̃(x)^β p(h | x), since h was drawn at temperature 1."""
        log_joint = whole.log_prob(x, h)
        if beta is None:
            return log_joint
        return log_joint + (beta - 1) * target.log_prob(x, {}) if target.summed else beta * log_joint

    def attempt(carry, now):
        x, h, log_prob = carry
        key, left_out = now
        for_place, for_choice, for_accept = jax.random.split(key, 3)
        changed = _change(for_choice, target, h, jax.random.randint(for_place, (), 0, places))
        shift = (ravel_pytree(changed)[0] - ravel_pytree(h)[0]) @ slope
        flat, unravel = ravel_pytree(x)
        moved = unravel(flat + shift.astype(flat.dtype))
        proposed = density(moved, changed)
        accept = jnp.log(jax.random.uniform(for_accept, (), log_prob.dtype)) < proposed - log_prob
        accept = accept & ~left_out
        new = (moved, changed, proposed)
        return jax.tree.map(lambda new, old: jnp.where(accept, new, old), new, carry), None

    start = (continuous, discrete, density(continuous, discrete))
    for_tries, for_first = jax.random.split(key)
    left_out = (jnp.arange(TRIES) == 0) & jax.random.bernoulli(for_first)
    (x, h, _), _ = jax.lax.scan(attempt, start, (jax.random.split(for_tries, TRIES), left_out))
    return x, h


def _places(target: Target) -> int:
    """Return the number of choices that can be changed."""
    return sum(_rows(domain) for domain in target.discrete.values())


def _change(key: PRNGKeyArray, target: Target, h: State, place: Array) -> State:
    """Return h with one choice changed: a bit flipped, or another option drawn uniformly."""
    changed, first = {}, 0
    for name, domain in target.discrete.items():
        rows = h[name].reshape(_rows(domain), -1)
        if isinstance(domain, Binary):
            new = 1 - rows
        else:
            new = jnp.roll(rows, jax.random.randint(key, (), 1, rows.shape[1]), axis=1)
        here = (jnp.arange(len(rows)) == place - first)[:, None]
        changed[name] = jnp.where(here, new, rows).reshape(h[name].shape)
        first += len(rows)
    return changed


def _rows(domain: Any) -> int:
    return domain.size if isinstance(domain, Binary) else domain.size // domain.shape[-1]
