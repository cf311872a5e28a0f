# %% [markdown]
# # Digits with a deep EBLVM
#
# A small network is trained on the digits that come with the package (8 × 8 pixels) by the paper's multiscale DSM. The
# Gaussian posterior is trained by the Fisher divergence, and its samples are corrected by Langevin steps. This takes
# three minutes on one CPU core; `vages train digits-paper` is a longer version.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vages
from vages.app.report import image_grid

STEPS = 10_000
LATENTS = 16
SAMPLING = 0.5  # of the paper's 2,700 Langevin steps

images = vages.data.load_digits().splits
keys = jax.random.split(jax.random.key(0), 5)
shape = (1, 8, 8)
model = vages.DeepEBLVM.vectors(keys[0], shape, width=256, depth=4, latents=LATENTS, head_width=256)
posterior = vages.GaussianPosterior.mlp(keys[1], shape, LATENTS, width=256, depth=2)

# %%
levels = vages.NoiseRange(0.1, 1.5, "geometric", base=0.1)
corrector = vages.Corrector(steps=5, step_size=1e-2, noise_std=1e-4)
learner = vages.Learner(
    vages.MDSM(levels, vages.Variational(2, corrector)),
    learning_rate=vages.learning_rate(5e-4, decay="cosine", steps=STEPS, warmup=min(200, STEPS // 10), final=1e-6),
    divergence=vages.fisher,
    ema=0.999,
)
fitted = vages.fit(keys[2], model, posterior, jnp.asarray(images.train), learner, steps=STEPS)

# %% [markdown]
# To sample, take h from the posterior means of random training images, and run annealed Langevin dynamics of v given h.
# The samples use the averaged parameters.


# %%
@eqx.filter_jit
def means(model, posterior, v):
    return vages.infer(model, posterior, v).mean


rows = np.random.default_rng(0).permutation(len(images.train))[:100]
h = means(fitted.model, fitted.posterior, jnp.asarray(images.train[rows]))
schedule = vages.Schedule(denoise=0.1).scaled(SAMPLING)
drawn = vages.sample(keys[3], fitted.model, len(h), h=h, sampler=vages.Annealed(schedule))
pictures = np.asarray(drawn.v)
spread = np.nanstd(pictures, axis=0).mean() / images.train.std(axis=0).mean()
lost = int(np.isnan(pictures[:, 0, 0, 0]).sum())
print(f"{lost} of 100 chains diverged; spread of pixels over the data's {spread:.2f}")
image_grid({"data": images.train[rows], "samples": pictures}).savefig("digits.png", dpi=120)
