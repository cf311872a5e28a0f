"""Draw the pictures of the page on the idea: `python docs/pictures.py [FOLDER]`, half a minute on two CPU cores."""

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import vages
from vages.app.recipes import model_density
from vages.app.report import COLORS, grid_points

BLUE, ORANGE, GREEN = COLORS[:3]


def split_figure() -> Figure:
    """What depends on v alone is computed once; what meets h is computed for each sample."""
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 16), ylim=(0, 5))
    axes.set_axis_off()

    def box(x: float, y: float, width: float, height: float, text: str, color: str) -> None:
        style = {"boxstyle": "round,pad=0.1", "facecolor": color + "22", "edgecolor": color, "lw": 1.5}
        axes.add_patch(FancyBboxPatch((x, y), width, height, **style))
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=11)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "0.3", "lw": 1.3})

    axes.text(0.4, 2.5, "v", fontsize=15, ha="center", va="center", style="italic")
    arrow((0.8, 2.5), (1.7, 2.5))
    box(1.9, 0.7, 4.6, 3.6, "features(v)\n\nthe network:\nonce, whatever L is", BLUE)
    axes.text(7.6, 2.9, "f", fontsize=15, ha="center", va="center", style="italic")
    for i, y in enumerate((3.7, 2.1, 0.5)):
        arrow((6.7, 2.5), (9.0, y + 0.4))
        box(9.2, y, 4.0, 0.8, f"log_joint(f, h{'₁₂₃'[i]})", ORANGE)
        axes.text(
            8.6, y + (1.0 if i < 2 else -0.2), f"h{'₁₂₃'[i]}", fontsize=11, ha="center", va="center", style="italic"
        )
        arrow((13.4, y + 0.4), (14.2, y + 0.4))
        axes.text(15.2, y + 0.4, f"log p̃(v, h{'₁₂₃'[i]})", fontsize=10, ha="center", va="center")
    return figure


def example_grbm() -> vages.GRBM:
    """A machine of four modes on the plane."""
    weight = jnp.array([[3.0, 0.0], [0.0, 3.0]])
    return vages.GRBM(weight, jnp.array([-1.5, -1.5]), jnp.zeros(2), jnp.array(0.0))


def scores_figure() -> Figure:
    """The exact score; VaES with few and many samples of the right posterior; VaES with a wrong one."""
    model, extent = example_grbm(), (-4.0, 4.5, -4.0, 4.5)
    v = jnp.asarray(grid_points(extent, 13))
    wrong = vages.BernoulliPosterior(lambda v: jnp.zeros(2), temperature=0.0)
    exact = jax.vmap(model.score)(v)

    def estimate(posterior: vages.Posterior, samples: int) -> Array:
        score = vages.VariationalScore(model, posterior, samples=samples)
        return vages.evaluation.score_batch(jax.random.key(0), score, v)

    panels = {
        "exact": exact,
        "VaES, q = p, L = 2": estimate(vages.ExactPosterior(), 2),
        "VaES, q = p, L = 50": estimate(vages.ExactPosterior(), 50),
        "VaES, q fair coins, L = 50": estimate(wrong, 50),
    }
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    density = model_density(model, grid_points(extent))
    for axes, (title, score) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        axes.imshow(density, extent=extent, origin="lower", cmap="Blues", vmax=1.6 * density.max())
        axes.quiver(*np.asarray(v).T, *np.asarray(score).T, scale=60, width=0.006, color="0.15")
        error = float(jnp.sqrt(jnp.mean(jnp.sum((score - exact) ** 2, axis=1))))
        axes.set_title(title if score is exact else f"{title}\nroot mean square error {error:.2f}", fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def gradient_figure() -> Figure:
    """Entries of the gradient in θ of zᵀ∇_v log p: exact, by the expectation term alone, and with the covariance."""
    keys = jax.random.split(jax.random.key(0), 4)
    model = eqx.tree_at(lambda model: model.weight, vages.GRBM.init(keys[0], 6, 4), replace_fn=lambda w: 3 * w)
    v, z = jax.random.normal(keys[1], (20, 6)), jax.random.normal(keys[2], (20, 6))
    exact = eqx.filter_grad(lambda model: jnp.mean(jnp.sum(z * jax.vmap(model.score)(v), axis=1)))(model)
    h = vages.infer(model, vages.ExactPosterior(), v).sample(keys[3], 1000)

    def expectation(model: vages.GRBM) -> Array:
        log_joint = lambda v, h: jnp.mean(jax.vmap(lambda h: model.log_joint(model.features(v), h))(h))
        return jnp.mean(jnp.sum(z * jax.vmap(jax.grad(log_joint))(v, h), axis=1))

    flat = lambda gradient: np.ravel(gradient.weight)
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    ends = np.array([flat(exact).min(), flat(exact).max()])
    axes.plot(ends, ends, color="0.6", lw=1)
    axes.plot(flat(exact), flat(eqx.filter_grad(expectation)(model)), "^", ms=5, color=ORANGE, label="ê alone")
    axes.plot(flat(exact), flat(vages.gradient_estimate(model, v, h, z)), "o", ms=4, color=BLUE, label="ê + ĉ, VaGES")
    axes.set(xlabel="exact gradient in W, entry by entry", ylabel="estimate from 1,000 samples of h")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def cost_figure() -> Figure:
    """Arithmetic of a DSM gradient over that of a plain EBM, as the compiler counts it."""
    key, counts = jax.random.key(0), (2, 5, 10, 20)
    model = vages.DeepEBLVM.vectors(key, 256, width=512, depth=4, latents=16, head_width=64)
    plain = vages.EBM.vectors(key, 256, width=512, depth=4)
    network = vages.nets.ResidualMLP(key, 256 + 16, width=512, depth=4, out=64)
    bottom = vages.EnergyModel(lambda net, v, h: jnp.sum(net(jnp.concatenate([v, h])) ** 2), network, (256,), (16,))
    noised = vages.perturb(jnp.ones((32, 256)), jnp.ones((32, 256)), 0.3)

    def operations(model: vages.EBLVM, h: Array) -> float:
        gradient: Any = eqx.filter_jit(vages.vages_dsm)
        return gradient.lower(model, noised, h).compile().compiled.cost_analysis()["flops"]

    def lines(model: vages.EBLVM) -> list[float]:
        return [operations(model, jnp.ones((32, 2 * samples, 16))) / one for samples in counts]

    one = operations(plain, jnp.ones((32, 4, 0)))
    figure = Figure(figsize=(4.8, 3.4), layout="constrained")
    axes = figure.subplots()
    for name, which, color in (("h enters at the bottom", bottom, ORANGE), ("h meets the head alone", model, BLUE)):
        values = lines(which)
        axes.plot(counts, values, "o-", color=color, label=name)
        print(name, [round(value, 2) for value in values])
    axes.axhline(1, color="0.6", lw=1)
    axes.annotate("a plain EBM", (20, 1), xytext=(0, 6), textcoords="offset points", ha="right", fontsize=9)
    axes.set(xlabel="L, samples of h", ylabel="operations of a gradient, over the EBM's", ylim=0, xticks=counts)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


FIGURES = {"split": split_figure, "scores": scores_figure, "gradient": gradient_figure, "cost": cost_figure}


def main(folder: Path) -> None:
    """Write every picture to the folder."""
    for name, draw in FIGURES.items():
        draw().savefig(folder / f"idea-{name}.png", dpi=130)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
