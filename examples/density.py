# %% [markdown]
# # A density on the plane by VaGES-DSM
#
# A Gaussian restricted Boltzmann machine (GRBM) is trained on a mixture of eight Gaussians on a circle. Its
# log-likelihood is computed exactly, by summing over its 2¹⁰ latent states.

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
# Denoising score matching (DSM) adds noise of standard deviation σ to the data, and trains the model's score to point
# back to them. VaES uses L = 2 samples of h, and VaGES two more. The posterior takes five steps on each batch before
# the model takes one.

# %%
objective = vages.DSM(sigma=0.1, latents=vages.Variational(2))
learner = vages.Learner(objective, learning_rate=vages.learning_rate(1e-2, decay="cosine", steps=STEPS))
fitted = vages.fit(for_start, model, posterior, jnp.asarray(data.train), learner, steps=STEPS)

# %% [markdown]
# The model has learned the density of the noisy data. It is therefore compared with test points with the same noise.
# Their density is known: σ² is added to the variance of each Gaussian.

# %%
noise = np.random.default_rng(1).normal(size=data.test.shape).astype(np.float32)
test = data.test + 0.1 * noise
centers = np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)
square = ((test[:, None] - centers[None]) ** 2).sum(2)
own = float(np.log(np.mean(np.exp(-square / (2 * 0.02)), axis=1) / (2 * np.pi * 0.02)).mean())
learnt = vages.log_likelihood(jax.random.key(2), fitted.model, None, jnp.asarray(test))
print(f"test log-likelihood {learnt.mean:.3f} ± {learnt.error:.3f}; of the density itself {own:.3f}")

# %%
extent = vages.data.TOYS[TOY].bounds
density = model_density(fitted.model, grid_points(extent))
samples = np.asarray(vages.sample(jax.random.key(1), fitted.model, SAMPLES).v)
density_figure({"learnt density": density}, extent).savefig("density.png", dpi=120)
scatter_figure({"data": data.test[:SAMPLES], "samples": samples}, extent).savefig("samples.png", dpi=120)
