# %% [markdown]
# # A normalized EBLVM of small images: log p(v) in one pass, and by the ODE
#
# The data are MNIST at 8 × 8 pixels with uniform dequantization. The model has latents and an intractable posterior,
# and is trained by VaGES on the score in v and in the noise level. Its log p(v) takes one forward pass. The
# probability-flow ODE computes the log-likelihood of the same model from its scores in v alone, with hundreds of
# gradients. If both agree, the model is normalized. A Gaussian with the mean and covariance of the data is the
# baseline. This takes some minutes on a GPU, and as long on a laptop with `STEPS = 10_000` and `BATCH = 128`.

# %%
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import vages
from vages.data import load_mnist

SEED = 0
STEPS = 40_000
BATCH = 512
WIDTH = 512
TEST = 200
PROBES = 64
LEVEL_WEIGHT = 0.03  # about 2 / 64, as in the presets of images
UNIFORM = 1.0  # the share of examples whose noise level is uniform in ln σ


def small(images, seed):
    """Convert images (n, 1, 32, 32) to n rows of 64 pixels, each a mean of 16, with noise of one gray level."""
    pixels = images.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(-1, 64)
    noise = np.random.default_rng(seed).random(pixels.shape)
    return ((255 * pixels + noise) / 256).astype(np.float32)


splits = load_mnist().splits
train = small(np.concatenate([splits.train, splits.validation]), 1)
rows = np.random.default_rng(SEED).permutation(len(splits.test))[:TEST]  # the choice depends on the seed
test = small(splits.test[rows], 2 + SEED)
center = float(train.mean())
sigma_data = vages.measure_sigma_data(train, center)

# %%
for_model, for_posterior, for_training, for_noise, for_evaluation = jax.random.split(jax.random.key(SEED), 5)
model = vages.NoiseConditionalEBLVM.vectors(
    for_model,
    64,
    sigma_data=sigma_data,
    center=center,
    h=vages.Real(8),
    width=WIDTH,
    depth=3,
    features=64,
    head_width=64,
    embedding=64,
    normalized=True,
)
posterior = vages.FeaturePosterior.init(for_posterior, model, width=64)
rate = vages.learning_rate(1e-3, decay="cosine", steps=STEPS, warmup=STEPS // 20)
learner = vages.Learner(
    vages.NoiseConditionalDSM(sigma_data, level_weight=LEVEL_WEIGHT, uniform=UNIFORM),
    vages.adam(rate, b2=0.999, clip=1.0),
    vages.adam(rate, b2=0.999, clip=1.0),
    posterior_steps=3,
    ema=0.9995,
)
fitted = vages.fit(for_training, model, posterior, train, learner, steps=STEPS, batch=BATCH, chunk=100)

# %% [markdown]
# A normalized model is evaluated at a noise level, on examples with noise of that level. Here are three low levels.

# %%
model, posterior = fitted.model, fitted.posterior
log_density = eqx.filter_jit(vages.log_density)
covariance, mean = np.cov(train.T, dtype=np.float64), train.mean(axis=0, dtype=np.float64)
print(f"{TEST} test images, seed {SEED}")
for level in (model.sigma_min, 0.02 * sigma_data, 0.04 * sigma_data):
    noisy = jnp.asarray(test) + level * jax.random.normal(for_noise, test.shape)
    for_pass, for_flow = jax.random.split(for_evaluation)
    context = {"sigma": jnp.full(TEST, level)}
    density = log_density(for_pass, model, posterior, noisy, samples=256, context=context)
    one_pass = np.asarray(density.value, np.float64)
    flow = vages.flow_likelihood(for_flow, model, posterior, noisy, samples=4, probes=PROBES, sigma_min=level).value
    known: Any = covariance + level**2 * np.eye(64)
    gaussian = stats.multivariate_normal.logpdf(np.asarray(noisy), mean, known)
    difference = one_pass - flow
    error = difference.std(ddof=1) / TEST**0.5
    print(
        f"noise {level / sigma_data:.3f} σ_d: one pass {one_pass.mean():.2f} nats, ODE {flow.mean():.2f}, "
        f"Gaussian {gaussian.mean():.2f}"
    )
    print(
        f"    one pass less ODE {difference.mean():.2f} ± {error:.2f}, rank correlation "
        f"{stats.spearmanr(one_pass, flow)[0]:.3f}, effective share of q's samples {np.median(density.ess) / 256:.3f}"
    )
