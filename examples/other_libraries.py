# %% [markdown]
# # An energy in other libraries
#
# `vages.log_density` and `vages.score` are plain functions of v, and can be used with a sampler of blackjax, an ODE of
# diffrax and a flow of flowjax. Install `pip install diffrax flowjax`; blackjax is a dependency of vages.

# %%
import blackjax
import diffrax
import flowjax.distributions
import flowjax.flows
import flowjax.train
import jax
import jax.numpy as jnp

import vages

STEPS = 2000
FLOW_EPOCHS = 60


def energy(p, v, h):
    """E(v, h) of two clusters in 2D, at p and at −p."""
    return 0.5 * jnp.sum((v - p * (2 * h - 1)) ** 2)


def conditional(p, h):
    """p(v | h), with which samples and log Z of this energy are exact."""
    return vages.Gaussian(p * (2 * h - 1), jnp.zeros(2))


center = jnp.asarray([1.5, 0.5])
model = vages.EnergyModel(energy, center, v=vages.Real(2), h=vages.Binary(1), conditional=conditional)
log_density = lambda v: vages.log_density(None, model, None, v).value
score = vages.score(model)
keys = jax.random.split(jax.random.key(0), 4)

# %% [markdown]
# **blackjax**: its kernels need only a log density. `vages.sample` draws exactly here; without `conditional` it would
# run the same kernel in several chains, with a warm-up, R̂ and ESS.

# %%
kernel = blackjax.nuts.build_kernel()


def step(state, key):
    """Make one transition."""
    state, _ = kernel(key, state, log_density, step_size=0.8, inverse_mass_matrix=jnp.ones(2))
    return state, state.position


start = blackjax.nuts.init(jnp.zeros(2), log_density)
_, chain = jax.lax.scan(step, start, jax.random.split(keys[0], STEPS))
samples = vages.sample(keys[1], model, STEPS).v
squares = [float(jnp.mean(x**2)) for x in (chain, samples)]
print(f"blackjax: E v² is {squares[0]:.2f} of one chain, {squares[1]:.2f} by vages.sample, 2.25 exactly")

# %% [markdown]
# **diffrax**: the score is a vector field. Its flow leads to the modes.

# %%
field = diffrax.ODETerm(lambda t, v, args: score(None, v))


def climb(v):
    """Return the end of the flow from v."""
    ends = diffrax.diffeqsolve(field, diffrax.Tsit5(), t0=0, t1=20, dt0=0.1, y0=v, max_steps=2000).ys
    assert ends is not None
    return ends[-1]


modes = jax.vmap(climb)(samples[:5])
slope = jnp.max(jnp.abs(score(None, modes)))
print(f"diffrax: a mode at {jnp.abs(modes[0])}; the score there is {slope:.1e}")

# %% [markdown]
# **flowjax**: a flow that is fitted to the samples has a normalized density; log p̃ − log flow estimates log Z.

# %%
flow = flowjax.flows.masked_autoregressive_flow(
    keys[2], base_dist=flowjax.distributions.Normal(jnp.zeros(2)), flow_layers=4, nn_width=32
)
flow, _ = flowjax.train.fit_to_data(
    keys[3], flow, samples, max_epochs=FLOW_EPOCHS, max_patience=20, learning_rate=3e-3, show_progress=False
)
gap = jax.vmap(log_density)(samples) - flow.log_prob(samples)
log_z = vages.log_partition(keys[0], model)
print(f"flowjax: log p̃ − log flow is {jnp.mean(gap):.2f} ± {jnp.std(gap):.2f}; log Z {log_z.forward.value:.2f}")
