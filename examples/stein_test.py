# %% [markdown]
# # Is the model right?
#
# A Stein test needs the model's score and examples, but no normalizer. Small p-values are evidence against the model.
# Here the truth is known: the examples are drawn from a GRBM, and the tested models are this GRBM and others with
# slightly different weights.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import vages

EXAMPLES = 2000

truth = vages.GRBM(
    weight=2.0 * jax.random.normal(jax.random.key(0), (5, 4)),
    visible_bias=jnp.zeros(5),
    latent_bias=jnp.zeros(4),
    log_sigma=jnp.asarray(0.0),
)
examples = vages.sample(jax.random.key(1), truth, EXAMPLES).v

# %% [markdown]
# The score has a closed form for a GRBM. For models without one, it is estimated by VaES, from samples of h. The test
# keeps its level if these are samples of the posterior. Here q = p.


# %%
def p_values(change: float) -> tuple[float, float]:
    model = eqx.tree_at(lambda model: model.weight, truth, (1 + change) * truth.weight)
    exact = vages.ksd_test(jax.random.key(2), model.score, examples)
    vaes = vages.VariationalScore(model, vages.ExactPosterior(), samples=5)
    return exact.p_value, vages.ksd_test(jax.random.key(2), vaes, examples).p_value


changes = [0.0, 0.01, 0.02, 0.03, 0.05]
results = [p_values(change) for change in changes]
for change, (exact, variational) in zip(changes, results, strict=True):
    print(f"weights off by {100 * change:3.0f} %: p = {exact:.3f} by the exact score, {variational:.3f} by VaES")

# %%
figure = Figure(figsize=(5, 3), layout="constrained")
axes = figure.subplots()
axes.semilogy(changes, results, "o-", label=["exact score", "VaES"])
axes.axhline(0.05, color="0.5", lw=1)
axes.set(xlabel="relative change of the weights", ylabel="p-value")
axes.legend(frameon=False)
figure.savefig("stein.png", dpi=120)
