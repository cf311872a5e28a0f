# %% [markdown]
# # Your own model with discrete latents
#
# Images of 3 × 3 pixels are sums of bars, three horizontal and three vertical, each present with probability ¼. The
# latents indicate which bars are present. They are dependent given an image, since one bar explains away the pixels of
# another, so the posterior does not factorize. The shapes of the bars are learned.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vages
from vages.app.report import image_grid

STEPS = 6000
SIDE, WIDTH = 3, 0.5

generator = np.random.default_rng(0)
rows = np.kron(np.eye(SIDE), np.ones(SIDE))
columns = np.kron(np.ones(SIDE), np.eye(SIDE))
bars = np.concatenate([rows, columns]).astype(np.float32)
causes = generator.random((20_000, 2 * SIDE)) < 0.25
images = (causes @ bars + 0.1 * generator.normal(size=(20_000, SIDE**2))).astype(np.float32)

# %% [markdown]
# The energy is a function of one example. `bars` holds the shapes of the bars, `prior` their log-odds, and the squared
# error of the image adds to the energy. The standard deviation of the noise is fixed to `WIDTH`. The noise of the data
# is smaller; DSM adds the rest.


# %%
def energy(params, v, h):
    return jnp.sum((v - h @ params["bars"]) ** 2) / (2 * WIDTH**2) - params["prior"] @ h


def parts(key):
    for_bars, for_network = jax.random.split(key)
    params = {"bars": 0.2 * jax.random.normal(for_bars, bars.shape), "prior": -jnp.ones(len(bars))}
    network = eqx.nn.MLP(SIDE**2, len(bars), width_size=64, depth=1, activation=jax.nn.elu, key=for_network)
    model = vages.EnergyModel(energy, params, v=vages.Real(SIDE**2), h=vages.Binary(len(bars)))
    return model, vages.BernoulliPosterior(network, temperature=0.1)  # the logits of h are the network's output


# %% [markdown]
# With some initializations, two bars end up in one row of `bars` and stay there. Four initializations are trained in
# one program, and the one with the lowest loss is used.

# %%
sigma = (WIDTH**2 - 0.1**2) ** 0.5
rate = vages.learning_rate(3e-3, decay="cosine", steps=STEPS)
learner = vages.Learner(vages.DSM(sigma, latents=vages.Variational(5)), learning_rate=rate)
keys = jax.random.split(jax.random.key(0), 4)  # four runs in one program
models, posteriors = eqx.filter_vmap(parts)(keys)
fitted = vages.fit(keys, models, posteriors, jnp.asarray(images), learner, steps=STEPS)
losses = fitted.curve("loss")[1][-1]

# %% [markdown]
# Each bar should be one row of the learned `bars`, in any order.

# %%
learnt = np.asarray(fitted.model.params["bars"])[np.argmin(losses)]
distance = np.abs(bars[:, None] - learnt[None]).max(2).min(1)
print(f"losses of the starts: {np.round(losses, 2)}")
print(f"largest error of a pixel, bar by bar: {np.round(distance, 2)}; found {np.sum(distance < 0.3)} of {len(bars)}")
figure = image_grid({"what was learnt": learnt.clip(0, 1).reshape(-1, SIDE, SIDE)}, columns=3)
figure.savefig("bars.png", dpi=120)
