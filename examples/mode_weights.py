# %% [markdown]
# # What a likelihood is good for: the weights of modes
#
# Three Gaussians far apart have the weights 0.1, 0.3 and 0.6. The score at low noise does not determine these weights:
# there are no data between the modes, which would relate one mode to another. The derivative of the log-density with
# respect to the noise level does determine them. Two noise-conditional EBLVMs are trained in the same way, with latents
# and VaGES: one matches the score in v alone, the other also matches the score in the noise level.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vages
from vages.app.report import density_figure, grid_points

STEPS = 6_000
CELLS = 200
TEST = 5_000
WEIGHTS = np.asarray([0.1, 0.3, 0.6])
MEANS = np.asarray([[-2.0, 0.0], [2.0, 1.0], [0.5, -2.5]])
WIDTH, EXTENT = 0.15, (-3.5, 3.5, -4.0, 3.0)


def drawn(rng, n):
    """Points of the mixture."""
    return (MEANS[rng.choice(3, n, p=WEIGHTS)] + WIDTH * rng.normal(size=(n, 2))).astype(np.float32)


def log_mixture(v):
    """The log-density of the mixture."""
    square = ((v[:, None] - MEANS) ** 2).sum(axis=2)
    return np.log(np.exp(-square / (2 * WIDTH**2)) @ WEIGHTS / (2 * np.pi * WIDTH**2) + 1e-300)


rng = np.random.default_rng(0)
train, test = jnp.asarray(drawn(rng, 50_000)), jnp.asarray(drawn(rng, TEST))
center = float(train.mean())
sigma_data = vages.measure_sigma_data(train, center)

# %% [markdown]
# The first model gets a weight of 1e-9 for the score in the noise level, which has practically no effect.


# %%
def trained(level_weight):
    """A model with 8 latents and its posterior."""
    for_model, for_posterior, for_training = jax.random.split(jax.random.key(0), 3)
    sizes = {"width": 128, "depth": 2, "features": 32, "head_width": 32, "embedding": 32}
    model = vages.NoiseConditionalEBLVM.vectors(
        for_model,
        2,
        sigma_data=sigma_data,
        center=center,
        h=vages.Real(8),
        normalized=True,
        frequencies=(1.0, 3.0, 8.0),
        **sizes,
    )
    posterior = vages.FeaturePosterior.init(for_posterior, model, width=64)
    rate = vages.learning_rate(2e-3, decay="cosine", steps=STEPS, warmup=STEPS // 20)
    learner = vages.Learner(
        vages.NoiseConditionalDSM(sigma_data, level_weight=level_weight),
        vages.adam(rate, b2=0.999, clip=1.0),
        vages.adam(rate, b2=0.999, clip=1.0),
        posterior_steps=3,
        ema=0.999,
    )
    return vages.fit(for_training, model, posterior, train, learner, steps=STEPS, batch=128, chunk=100)


# %% [markdown]
# The weight of a mode is the mass of the grid points nearest to its mean. log Z is computed on the same grid. It is 0
# if the model is normalized, which the log-likelihood assumes. In the picture, every density is scaled to mass 1.

# %%
points = grid_points(EXTENT, CELLS)
nearest = ((points[:, None] - MEANS) ** 2).sum(axis=2).argmin(axis=1)
cell = (EXTENT[1] - EXTENT[0]) * (EXTENT[3] - EXTENT[2]) / CELLS**2
log_density = eqx.filter_jit(vages.log_density)
densities = {"data": np.exp(log_mixture(points)).reshape(CELLS, CELLS)}
print(f"the data's own: weights {WEIGHTS.round(3)}, log-likelihood {log_mixture(np.asarray(test)).mean():.3f}")
for name, level_weight in (("score in v alone", 1e-9), ("score in the level too", 1.0)):
    fitted = trained(level_weight)
    found = lambda v, fitted=fitted: log_density(jax.random.key(1), fitted.model, fitted.posterior, v, samples=64).value
    density = np.exp(np.asarray(found(jnp.asarray(points)), np.float64))
    mass = np.bincount(nearest, density, minlength=3)
    log_z = np.log(mass.sum() * cell)
    likelihood = float(found(test).mean())
    print(f"{name}: weights {(mass / mass.sum()).round(3)}, log-likelihood {likelihood:.3f}, log Z {log_z:.2f}")
    densities[name] = (density / np.exp(log_z)).reshape(CELLS, CELLS)
density_figure(densities, EXTENT).savefig("mode_weights.png", dpi=130)
