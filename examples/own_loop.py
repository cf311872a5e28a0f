# %% [markdown]
# # Your own training loop
#
# A learner consists of two functions, `init` and `step`. Call `step` to write your own loop. The model is linear and
# Gaussian, so the best possible likelihood is known: that of a Gaussian with the covariance of the data.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vages

STEPS = 10_000
BLOCK = 1000
SIGMA = 0.3

generator = np.random.default_rng(0)
data = jnp.asarray((generator.normal(size=(10_000, 2)) @ generator.normal(size=(2, 6)) / 2).astype(np.float32))

keys = jax.random.split(jax.random.key(0), 4)
model = vages.LinearGaussian.init(keys[0], 6, 2)
posterior = vages.GaussianPosterior.linear(keys[1], 6, 2)  # the true posterior is in this family
rate = vages.learning_rate(1e-2, decay="cosine", steps=STEPS)
learner = vages.Learner(vages.DSM(SIGMA, latents=vages.Variational(5)), learning_rate=rate)
state = learner.init(keys[2], model, posterior, batch=100)


# %% [markdown]
# A step is a pure function. `lax.scan` runs a block of steps in one compiled call.


# %%
@eqx.filter_jit
def advance(state, key):
    arrays, rest = eqx.partition(state, eqx.is_array)

    def one(arrays, key):
        for_rows, for_step = jax.random.split(key)
        batch = vages.Batch(data[jax.random.randint(for_rows, (100,), 0, len(data))])
        state, metrics = learner.step(for_step, eqx.combine(arrays, rest), batch)
        return eqx.filter(state, eqx.is_array), metrics["loss"]

    arrays, losses = jax.lax.scan(one, arrays, jax.random.split(key, BLOCK))
    return eqx.combine(arrays, rest), jnp.mean(losses)


for block, key in enumerate(jax.random.split(keys[3], STEPS // BLOCK)):
    state, loss = advance(state, key)
    print(f"{BLOCK * (block + 1):6d} iterations, loss {loss:.3f}")

# %%
noised = data + SIGMA * jnp.asarray(generator.normal(size=data.shape).astype(np.float32))
learnt = vages.log_likelihood(keys[3], state.model, None, noised)
covariance = np.cov(np.asarray(noised, np.float64).T)
best = -0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + 6)
print(f"log-likelihood {learnt.mean:.3f}; of the best Gaussian {best:.3f}")
