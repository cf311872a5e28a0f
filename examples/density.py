# %% [markdown]
# # A density on the plane by VaGES-DSM
#
# A Gaussian restricted Boltzmann machine learns eight Gaussians on a circle. Its log-likelihood can be had exactly, by
# summing over its 2¹⁰ latent states, so that what was learnt is no matter of taste.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import vages
from vages.app.recipes import model_density
from vages.app.report import density_figure, grid_points, scatter_figure

STEPS = 30_000
SAMPLES = 5000
TOY = "eight_gaussians"

data = vages.data.load_toy(TOY, seed=0)
for_model, for_posterior, for_start = jax.random.split(jax.random.key(0), 3)
model = vages.GRBM.init(for_model, v_dim=2, h_dim=10)
posterior = vages.BernoulliPosterior.linear(for_posterior, 2, 10)

# %% [markdown]
# Noise of standard deviation σ is added to the data, and the model's score is to point back. L = 2 samples of h serve
# VaES, and two more VaGES. The posterior takes five steps on each batch before the model takes one.

# %%
objective = vages.DSM(sigma=0.1, latents=vages.Variational(2))
learner = vages.Learner(objective, learning_rate=vages.learning_rate(1e-2, decay="cosine", steps=STEPS))
fitted = vages.fit(for_start, model, posterior, jnp.asarray(data.train), learner, steps=STEPS)

# %% [markdown]
# The model has learnt the data with noise, so that it is compared with test points that have the same noise; the
# density of these is known too: σ² is added to the variance of each Gaussian.

# %%
noise = np.random.default_rng(1).normal(size=data.test.shape).astype(np.float32)
test = data.test + 0.1 * noise
centres = np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)
square = ((test[:, None] - centres[None]) ** 2).sum(2)
own = float(np.log(np.mean(np.exp(-square / (2 * 0.02)), axis=1) / (2 * np.pi * 0.02)).mean())
learnt = vages.log_likelihood(jax.random.key(2), fitted.model, None, jnp.asarray(test))
print(f"test log-likelihood {learnt.mean:.3f} ± {learnt.error:.3f}; of the density itself {own:.3f}")

# %%
extent = vages.data.TOYS[TOY].bounds
density = model_density(fitted.model, grid_points(extent))
samples = np.asarray(vages.sample(jax.random.key(1), fitted.model, SAMPLES).v)
density_figure({"learnt density": density}, extent).savefig("density.png", dpi=120)
scatter_figure({"data": data.test[:SAMPLES], "samples": samples}, extent).savefig("samples.png", dpi=120)
