# %% [markdown]
# # Your own energy and objective
#
# The data are points near a ring. The energy has six binary latents, each of which switches a bump on. Six latents have
# 64 states, so the score, its gradient and the posterior can be computed exactly. The same model is trained in three
# ways: by exact DSM, by VaGES-DSM with a learned posterior, and by an objective that is defined here.

# %%
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vages

STEPS = 3000
SIGMA = 0.3

generator = np.random.default_rng(0)
angles = generator.uniform(0, 2 * np.pi, 5000)
ring = np.stack([np.cos(angles), np.sin(angles)], axis=1) + 0.1 * generator.normal(size=(5000, 2))
data = jnp.asarray(ring.astype(np.float32))


# %%
def energy(params, v, h):
    return jnp.sum((v - h @ params["bumps"]) ** 2) / (2 * SIGMA**2) - params["prior"] @ h


params = {"bumps": jax.random.normal(jax.random.key(0), (6, 2)), "prior": -jnp.ones(6)}
model = vages.EnergyModel(energy, params, v=vages.Real(2), h=vages.Binary(6))


# %% [markdown]
# An objective returns a scalar, whose gradient is used for training, and the metrics to log. This one is DSM with
# clipped residuals, to limit the effect of outliers. A plain function would work too, but the posterior would then be
# trained at the data. With `perturb`, it is trained at the noisy points, where the model is evaluated.


# %%
class ClippedDSM(vages.Objective):
    def perturb(self, key, batch):
        return vages.objectives.add_noise(key, batch, SIGMA)

    def loss(self, key, model, posterior, given):
        for_score, for_gradient = jax.random.split(key)
        v, noised = given.encoding, given.points
        q = vages.infer(model, posterior, v)
        residual = jnp.clip(vages.vaes(model, v, q.sample(for_score, 4)) - noised.target, -10, 10)
        loss = jnp.mean(jnp.sum(residual**2, axis=1)) / 2
        return vages.surrogate(model, v, q.sample(for_gradient, 4), residual), {"loss": loss}, None


# %%
network = eqx.nn.MLP(2, 6, width_size=64, depth=2, activation=jax.nn.elu, key=jax.random.key(1))
learnt = vages.BernoulliPosterior(network)
methods = {
    "exact DSM": (vages.DSM(SIGMA, vages.Enumerated()), vages.ExactPosterior()),
    "VaGES-DSM": (vages.DSM(SIGMA, vages.Variational(4)), learnt),
    "clipped DSM": (ClippedDSM(), learnt),
}
rate = vages.learning_rate(1e-2, decay="cosine", steps=STEPS)
noise = jax.random.normal(jax.random.key(3), (2000, 2))
fresh = data[:2000] + SIGMA * noise
for name, (objective, posterior) in methods.items():
    learner = vages.Learner(objective, learning_rate=rate)
    fitted = vages.fit(jax.random.key(2), model, posterior, data, learner, steps=STEPS)
    found = fitted.model
    exact: Any = vages.infer(found, vages.ExactPosterior(), fresh)
    states = jnp.broadcast_to(found.h.states(), (2000, 64, 6))
    score = vages.vaes(found, fresh, states, jnp.exp(exact.log_probs))  # all states, weighted by their probabilities
    loss = jnp.mean(jnp.sum((score + noise / SIGMA) ** 2, axis=1)) / 2
    print(f"{name:11}: DSM loss by the exact score {loss:.3f}; latents on {np.asarray(exact.mean.mean(0)).round(2)}")
