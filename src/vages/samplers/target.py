"""Targets of Markov chains: some variables of a model, given the others.

    Target(model)                     p(v, h)
    Target(model, features=f)         p(h | v), where f are the features of one v
    Target(model, h=h)                p(v | h)

A state is a flat dict: "v", and "h", or "h.z" and "h.y" for mixed latents. Its continuous entries move along gradients.
The discrete ones are drawn given them, or are summed out of the density and drawn at the end.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vages.distributions import flat_noise
from vages.domains import Binary, Domain, Empty, Product
from vages.models import EBLVM, TractableEBLVM, log_joints, log_marginal
from vages.samplers.langevin import chain_dtype

MAX_SUMMED = 2**10  # most states that are summed over at every gradient

State = dict[str, Array]


class Target(eqx.Module):
    """An unnormalized density, with draws of its discrete variables."""

    model: EBLVM
    context: Any = None
    features: Any = None  # of a given v
    h: Any = None  # if it is given
    mask: Bool[Array, "..."] | None = None  # entries of v that are held
    known: Float[Array, "..."] | None = None  # their values
    summed: bool = eqx.field(static=True, default=False)  # whether discrete latents are summed out

    @property
    def domains(self) -> dict[str, Domain]:
        """The domains of the variables that are sampled."""
        v = {"v": self.model.v} if self.features is None else {}
        return v | (latents(self.model.h) if self.h is None else {})

    @property
    def continuous(self) -> dict[str, Domain]:
        """The domains of the variables that move along gradients."""
        return {name: domain for name, domain in self.domains.items() if domain.continuous}

    @property
    def discrete(self) -> dict[str, Domain]:
        """The domains of the variables that are drawn given the others."""
        return {name: domain for name, domain in self.domains.items() if not domain.continuous}

    def log_prob(self, continuous: State, discrete: State) -> Float[Array, ""]:
        """Return log p̃ of a state, without the discrete latents if these are summed out.

        Held entries of v are replaced by their known values. Their own density is standard normal, so that any sampler
        can move them.
        """
        state = continuous | discrete
        if self.mask is None or "v" not in state:
            return self._log_joint(self.features_at(state), state)
        free = -0.5 * jnp.sum(jnp.where(self.mask, state["v"], 0) ** 2)
        return free + self._log_joint(self.features_at(state), state)

    def features_at(self, state: State) -> Any:
        """Return the features of the state's v, or the given features."""
        if "v" not in state:
            return self.features
        v = self.hold(state["v"])
        return self.model.features(v) if self.context is None else self.model.features(v, self.context)

    def hold(self, v: Array) -> Array:
        """Return v with its held entries set to their values."""
        return v if self.mask is None or self.known is None else jnp.where(self.mask, self.known, v)

    def redraw(self, key: PRNGKeyArray, continuous: State, discrete: State, beta: Any = None) -> State:
        """Make a transition of the discrete variables given the others, for the density to the power β (default 1).

        Latents are drawn jointly if there is a closed form or few states, and one by one otherwise.
        """
        keys = iter(jax.random.split(key, 1 + len(self.discrete)))
        discrete = dict(discrete)
        if "v" in discrete:
            given = {name: value for name, value in discrete.items() if name != "v"}
            energy = lambda v: self.log_prob(continuous, given | {"v": v})
            discrete["v"] = _one_by_one(next(keys), energy, discrete["v"], self.model.v, beta)
        names = [name for name in self.discrete if name != "v"]
        if not names:
            return discrete
        features = self.features_at(continuous | discrete)
        if beta is None and isinstance(self.model, TractableEBLVM) and set(latents(self.model.h)) == set(names):
            q = jax.tree.map(lambda x: x[None], self.model.posterior(features).hard())
            h = jax.tree.map(lambda x: x[0], q.draw(next(keys)))
            return discrete | latent_states(self.model.h, h)
        if self._few():
            return discrete | self._all_at_once(next(keys), features, continuous, beta)
        for name in names:
            energy = lambda value, name=name: self._log_joint(features, continuous | discrete | {name: value})
            discrete[name] = _one_by_one(next(keys), energy, discrete[name], self.discrete[name], beta)
        return discrete

    def complete(self, key: PRNGKeyArray, continuous: State) -> State:
        """Draw the discrete latents that are summed out, exactly."""
        return self._all_at_once(key, self.features_at(continuous), continuous, None)

    def whole(self) -> "Target":
        """Return the target with nothing summed out."""
        return replace(self, summed=False)

    def can_sum(self) -> bool:
        """Whether discrete latents have few enough states to be summed out, and continuous variables remain."""
        return bool(self.discrete) and bool(self.continuous) and "v" not in self.discrete and self._few()

    def _few(self) -> bool:
        count = Product({name: domain for name, domain in self.discrete.items() if name != "v"}).count
        return count is not None and count <= MAX_SUMMED

    def _log_joint(self, features: Any, state: State) -> Float[Array, ""]:
        if self.h is not None:
            return self.model.log_joint(features, self.h)
        if self.summed:
            return log_marginal(self._discrete_part(state), features, chain_dtype(self.model))
        return self.model.log_joint(features, assemble(self.model.h, state))

    def _all_at_once(self, key: PRNGKeyArray, features: Any, state: State, beta: Any) -> State:
        part, dtype = self._discrete_part(state), chain_dtype(self.model)
        logs = log_joints(part, features, dtype)
        number = jax.random.categorical(key, logs if beta is None else beta * logs)
        return jax.tree.map(lambda x: x[0], part.h.states(dtype, number[None]))

    def _discrete_part(self, state: State) -> "_DiscretePart":
        names = [name for name in latents(self.model.h) if not latents(self.model.h)[name].continuous]
        return _DiscretePart(self.model, {k: x for k, x in state.items() if k not in names and k != "v"}, tuple(names))


class _DiscretePart(EBLVM):
    """A model of the discrete latents alone, given the continuous ones, for sums over their states."""

    model: EBLVM
    rest: State
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def v(self) -> Domain:
        return self.model.v

    @property
    def h(self) -> Product:
        own = latents(self.model.h)
        return Product({name: own[name] for name in self.names})

    def features(self, v: Array, context: Any = None) -> Any:
        return self.model.features(v) if context is None else self.model.features(v, context)

    def log_joint(self, features: Any, h: State) -> Float[Array, ""]:
        return self.model.log_joint(features, assemble(self.model.h, self.rest | h))


def latents(domain: Domain) -> dict[str, Domain]:
    """Return the parts of h by their names in a state; an empty dict if the model has no latents."""
    if isinstance(domain, Product):
        return {f"h.{name}": part for name, part in domain.parts}
    return {} if isinstance(domain, Empty) else {"h": domain}


def assemble(domain: Domain, state: State, *lead: int) -> Any:
    """Return h, an array or a dict, from the entries of a state, or of states with leading axes `lead`."""
    if isinstance(domain, Product):
        return {name: state[f"h.{name}"] for name, _ in domain.parts}
    return jnp.zeros((*lead, 0)) if isinstance(domain, Empty) else state["h"]


def states_of(domain: Domain, v: Any, h: Any) -> State:
    """Return the entries of a state from v and h."""
    return {"v": v} | latent_states(domain, h)


def latent_states(domain: Domain, h: Any) -> State:
    """Return the entries of a state from h, the inverse of `assemble`."""
    if isinstance(domain, Product):
        return {f"h.{name}": h[name] for name, _ in domain.parts}
    return {} if isinstance(domain, Empty) else {"h": h}


def scattered(key: PRNGKeyArray, domain: Domain, lead: tuple[int, ...], dtype: Any) -> Array:
    """Draw standard normal numbers, or uniformly distributed discrete states, with leading axes `lead`."""
    if domain.continuous:
        return flat_noise(jax.random.normal, key, (*lead, *domain.shape), dtype)
    if isinstance(domain, Binary):
        return jax.random.bernoulli(key, 0.5, (*lead, *domain.shape)).astype(dtype)
    *rows, choices = domain.shape
    return jax.nn.one_hot(jax.random.randint(key, (*lead, *rows), 0, choices), choices, dtype=dtype)


def _one_by_one(key: PRNGKeyArray, log_prob: Any, value: Array, domain: Domain, beta: Any) -> Array:
    """Draw each choice of a discrete variable given all others, one after the other."""
    options = jnp.asarray([[0.0], [1.0]] if isinstance(domain, Binary) else jnp.eye(domain.shape[-1]), value.dtype)
    rows = value.reshape(-1, options.shape[1])

    def choose(rows, now):
        place, key = now
        candidates = jax.vmap(lambda option: rows.at[place].set(option))(options)
        logs = jax.vmap(lambda rows: log_prob(rows.reshape(value.shape)))(candidates)
        return candidates[jax.random.categorical(key, logs if beta is None else beta * logs)], None

    places = jnp.arange(len(rows), dtype=jnp.int32)
    return jax.lax.scan(choose, rows, (places, jax.random.split(key, len(rows))))[0].reshape(value.shape)
