"""Cost of latents: a VaGES-DSM gradient compared with a DSM gradient of the same energy without latents.

Counted in matrix products of a layer, both make a forward pass, a pullback to v, a push-forward along z, two weight
gradients and one backward pass; VaGES makes one backward pass more, because VaES and VaGES see different h and so
different cotangents of the features: 7 products against 6 in a deep layer, 5 against 5 in the first.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vages.domains import Real
from vages.models import EBLVM, encode
from vages.objectives import perturb, vages_dsm
from vages.posteriors import GaussianPosterior, infer
from vages.timing import ratio, side_by_side

V_DIM, WIDTH, DEPTH, H_DIM, HEAD, BATCH, SIGMA = 3072, 2048, 2, 16, 64, 100, 0.3  # color images of 32 × 32
STEPS = 2


class MLPEnergy(EBLVM):
    """E(v, h) = ‖ELU(A [f + h, h])‖² with f = MLP(v), as in the paper's deep models."""

    network: eqx.nn.MLP
    head: eqx.nn.Linear

    @property
    def v(self) -> Real:
        return Real(V_DIM)

    @property
    def h(self) -> Real:
        return Real(H_DIM)

    def features(self, v: Array) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.network(v)

    def log_joint(self, features: Array, h: Array) -> Float[Array, ""]:
        return -jnp.sum(jax.nn.elu(self.head(jnp.concatenate([features + h, h]))) ** 2)


def run(rounds: int = 50) -> dict:
    """Time one gradient with latents (sampled from a posterior) and without (h = 0), and return their ratio.

    The gradient without latents is timed in two forms, of which the faster counts: reverse over reverse, as it is
    usually written, and the directional form that VaGES itself uses.
    """
    keys = jax.random.split(jax.random.key(0), 6)
    model = MLPEnergy(
        eqx.nn.MLP(V_DIM, H_DIM, WIDTH, DEPTH, jax.nn.elu, key=keys[0]), eqx.nn.Linear(2 * H_DIM, HEAD, key=keys[1])
    )
    posterior = GaussianPosterior.linear(keys[2], V_DIM, H_DIM)
    noised = perturb(jax.random.uniform(keys[3], (BATCH, V_DIM)), jax.random.normal(keys[4], (BATCH, V_DIM)), SIGMA)

    def log_density(model, v):
        return model.log_joint(model.features(v), jnp.zeros(H_DIM))

    def reverse_over_reverse(model, key):
        def loss(model):
            score = jax.vmap(jax.grad(lambda v: log_density(model, v)))(noised.v)
            return 0.5 * jnp.mean(jnp.sum((score - noised.target) ** 2, axis=1))

        return eqx.filter_grad(loss)(model)

    def directional(model, key):
        density = lambda model: jax.vmap(lambda v: log_density(model, v))
        log_p, pullback = jax.vjp(density(model), noised.v)
        residual = pullback(jnp.ones_like(log_p))[0] - noised.target
        along = lambda model: jnp.mean(jax.jvp(density(model), (noised.v,), (residual,))[1])
        return eqx.filter_grad(along)(model)

    def with_latents(samples):
        def gradient(model, key):
            encoding = encode(model, noised.v)
            h = infer(model, posterior, encoding).sample(key, 2 * samples)
            return vages_dsm(model, noised, h, encoding)[1]

        return gradient

    def descend(gradient):
        """Run several steps in one program, so that the allocation of a gradient outside it is not measured."""
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def step(params, key):
            direction = gradient(eqx.combine(params, static), key)
            return jax.tree.map(lambda x, g: x - 1e-6 * g, params, direction), None

        program = jax.jit(lambda params, keys: jax.lax.scan(step, params, keys)[0])
        return lambda: program(params, jax.random.split(keys[5], STEPS))

    gradients = {
        "dsm, reverse over reverse": reverse_over_reverse,
        "dsm, directional": directional,
        "vages-dsm, L = 2": with_latents(2),
        "vages-dsm, L = 10": with_latents(10),
    }
    programs = {name: descend(gradient) for name, gradient in gradients.items()}
    times = {name: seconds / STEPS for name, seconds in side_by_side(programs, rounds).items()}
    plain = min(list(times.values())[:2], key=np.median)
    return {
        "parameters": sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))),
        "batch": BATCH,
        "milliseconds": {name: 1e3 * float(np.median(seconds)) for name, seconds in times.items()},
        "ratio L = 2": ratio(times["vages-dsm, L = 2"], plain),
        "ratio L = 10": ratio(times["vages-dsm, L = 10"], plain),
    }
