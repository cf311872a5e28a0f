# %% [markdown]
# # An energy and an objective of one's own
#
# Points lie about a ring; the energy has six binary latents, each of which switches a bump on. Six latents have 64
# states, so that everything can be exact: the score, its gradient, the likelihood of a state. The same model is learnt
# three ways: by exact DSM, by VaGES-DSM with a learnt posterior, and by an objective written here.

# %%
from typing import Any

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
# An objective is a function of a key, the model, the posterior and a batch. It returns a scalar, whose gradient is
# followed, and what is to be logged. This is DSM with absolute values in the place of squares.


# %%
def robust_dsm(key, model, posterior, batch):
    for_noise, for_score, for_gradient = jax.random.split(key, 3)
    noise = jax.random.normal(for_noise, batch.v.shape)
    v = batch.v + SIGMA * noise
    q = vages.infer(model, posterior, v)
    residual = vages.vaes(model, v, q.sample(for_score, 4)) + noise / SIGMA
    loss = jnp.mean(jnp.sum(jnp.sqrt(1 + residual**2), axis=1))
    slope = residual / jnp.sqrt(1 + residual**2)
    return vages.surrogate(model, v, q.sample(for_gradient, 4), slope), {"loss": loss}


# %%
learnt = vages.BernoulliPosterior.linear(jax.random.key(1), 2, 6)
methods = {
    "exact DSM": (vages.DSM(SIGMA, vages.Enumerated()), vages.ExactPosterior()),
    "VaGES-DSM": (vages.DSM(SIGMA, vages.Variational(4)), learnt),
    "robust DSM": (robust_dsm, learnt),
}
rate = vages.learning_rate(1e-2, decay="cosine", steps=STEPS)
fresh = data[:2000] + SIGMA * jax.random.normal(jax.random.key(3), (2000, 2))
for name, (objective, posterior) in methods.items():
    learner = vages.make_learner(objective, learning_rate=rate)
    state = learner.init(jax.random.key(2), model, posterior, batch=100)
    fitted = vages.fit(learner, state, data, steps=STEPS, batch=100)
    found = fitted.state.model
    exact: Any = vages.infer(found, vages.ExactPosterior(), fresh)
    used = np.asarray(exact.mean.mean(0))
    centres = np.asarray(found.h.states() @ found.params["bumps"])
    radius = np.linalg.norm(centres[np.asarray(jnp.exp(exact.log_probs).mean(0)) > 0.02], axis=1)
    print(
        f"{name:10}: centres in use at radii {radius.min():.2f} to {radius.max():.2f}; latents on {np.round(used, 2)}"
    )
