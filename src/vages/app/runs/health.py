"""Health checks of a run, during training and at its end."""

import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.app.recipes import Examples, Recipe, Trained
from vages.app.recipes.trained import Drawn
from vages.app.report.page.summaries import AS_WIDE, ZERO_SCORE
from vages.app.runs.classes import untrained_problem
from vages.domains import Real
from vages.models import EBLVM, InContext, NoiseConditionalEBLVM, features_of
from vages.objectives import Batch, Enumerated, as_objective
from vages.objectives.noise import zero_score_loss
from vages.objectives.noise_conditional import NoiseConditionalDSM
from vages.posteriors import Posterior, fisher, has_parameters, infer
from vages.terminal import printable
from vages.training import RunFolder, seed_keys
from vages.training.health import (
    FEWEST,
    Baseline,
    Finding,
    look_at_averages,
    look_at_data,
    look_at_history,
    look_at_latents,
    look_at_samples,
    look_far_out,
)
from vages.training.learner_record import LearnerWarning
from vages.training.scale import ScaleWarning, scale_problem, spread_rows

_ROWS = 1000  # examples for a baseline, and for comparison with samples
_BATCHES = 50  # of _ROWS examples, for the loss of a Gaussian: a few noisy examples dominate a single batch
_LATENTS = {16: 2000, 1000: 250}  # examples whose latents are checked, by the largest size of v
_GROUP = 50  # examples whose latents are exchanged with each other
_RARELY = 10  # chunks between two checks
_FAR = 30, 300  # times as far from the mean as the examples


class Watch:
    """Callback that logs a warning event for a problem, once for each part of a run (`Finding.of`)."""

    def __init__(self, folder: RunFolder, recipe: Recipe):
        self._folder, self._how, self._history, self._told = folder, _how(recipe), [], set[str]()

    def __call__(self, record: dict[str, Any]) -> None:
        """Check the log so far, except for a rising loss, which is checked at the end of training."""
        self._history.append(record)
        if len(self._history) % _RARELY:
            return
        for finding in look_at_history(self._history, ended=False, **self._how):
            if finding.of not in self._told:
                self._told.add(finding.of)
                self._folder.tell("warning", step=record["step"], problem=finding.told)


def tell_warning(folder: RunFolder, problem: str) -> None:
    """Log a warning event, and print it on standard error."""
    folder.tell("warning", problem=problem)
    print(f"vages: warning: {printable(problem)}", file=sys.stderr)


@contextmanager
def telling_warnings(folder: RunFolder) -> Iterator[None]:
    """Turn a `ScaleWarning` or a `LearnerWarning` of `fit` into a warning event and a line on standard error."""
    show = warnings.showwarning

    def told(message: Any, category: Any, *rest: Any) -> None:
        if not issubclass(category, ScaleWarning | LearnerWarning):
            return show(message, category, *rest)
        return tell_warning(folder, str(message))

    with warnings.catch_warnings():
        for category in (ScaleWarning, LearnerWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = told
        yield


def health_of(trained: Trained, drawn: Drawn) -> dict[str, Any]:
    """Return findings on the data, log, samples, averages and latents of a run, and the loss of a baseline.

    `judged` is False if the log is too short to judge.
    """
    recipe, state, samples = trained.recipe, trained.fitted.state, drawn.samples
    baseline, judged = _baseline(trained), None
    found = [] if state.averages is None else look_at_averages(_leaves(state.model), _leaves(state.averages.model))
    if trained.data.stream is None:
        data, problem = examples_of(trained.data), scale_problem(recipe.objective, trained.data.of_seed(0).splits.train)
        problems = problem, untrained_problem(trained.data, recipe.settings)
        found += [Finding("data", "warning", one) for one in problems if one]
        found += look_at_data(data) or [
            *([] if samples is None else look_at_samples(samples, data, noise_of_samples(recipe, trained.model))),
            *([] if trained.data.context is not None else _of_model(trained)),
        ]
        exact = isinstance(getattr(recipe.objective, "latents", None), Enumerated)
        unused = any(finding.of == "latents" for finding in found)
        judged = baseline if exact or unused else None  # otherwise the variance of VaES adds to the loss
    history = trained.fitted.history
    found = [*look_at_history(history, baseline=judged, **_how(recipe)), *found, *drawn.findings]
    told = lambda level: [finding.told for finding in found if finding.level == level]
    health = {"warnings": told("warning"), "notices": told("notice"), "judged": len(history) >= FEWEST}
    return health if baseline is None else {**health, f"loss of {baseline.of}": baseline.loss}


def _how(recipe: Recipe) -> dict[str, Any]:
    learner = recipe.make_learner()
    return {"falls": as_objective(learner.objective).falls, "divergence": learner.divergence is fisher}


def examples_of(data: Examples) -> np.ndarray:
    """Return evenly spaced training examples, mirror images included."""
    arrays = data.of_seed(0).trained
    return np.concatenate([rows[spread_rows(len(rows), _ROWS // len(arrays))] for rows in arrays])


def noise_of_samples(recipe: Recipe, model: Any) -> float:
    """Return the noise level of a model's samples; 0 for a noise-conditional model, whose lowest level is small."""
    return 0.0 if isinstance(model, NoiseConditionalEBLVM) else recipe.noise_std


def _baseline(trained: Trained) -> Baseline | None:
    """Return the loss on training examples of a zero score, or of a Gaussian for a noise-conditional model, or None."""
    data = trained.data.of_seed(0)
    if data.stream is not None:
        return None
    key = seed_keys(trained.recipe.seeds[:1], "baseline")[0]
    train, objective = data.splits.train, trained.recipe.objective

    def batch(rows: np.ndarray) -> Batch:
        context = data.context and {name: jnp.asarray(part.train[rows]) for name, part in data.context.items()}
        return Batch(jnp.asarray(train[rows]), context)

    if isinstance(objective, NoiseConditionalDSM):
        rng, center = np.random.default_rng(0), getattr(trained.model, "center", 0.0)
        chosen = (jnp.asarray(train[rng.integers(len(train), size=_ROWS)]) for _ in range(_BATCHES))
        keys = jax.random.split(key, _BATCHES)
        means = [float(jnp.mean(objective.gaussian_losses(*one, center))) for one in zip(keys, chosen, strict=True)]
        found = Baseline(AS_WIDE, float(np.mean(means)), float(np.std(means) / math.sqrt(_BATCHES)))
    elif (loss := zero_score_loss(key, objective, batch(spread_rows(len(train), _ROWS)))) is not None:
        found = Baseline(ZERO_SCORE, loss)
    else:
        return None
    return found if math.isfinite(found.loss) else None


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]


def _of_model(trained: Trained) -> list[Finding]:
    """Return findings from log p̃(v, h): on the latents and, for custom recipes, on energies far from the data."""
    recipe = trained.recipe
    model, posterior = trained.of_seed(0)
    noise = recipe.noise_std
    if isinstance(model, NoiseConditionalEBLVM):
        noise = max(noise, model.sigma_min)
        model = InContext(model, {"sigma": noise})
    rows = trained.data.of_seed(0).splits.train
    count = next((count for size, count in _LATENTS.items() if model.v.size <= size), _GROUP)
    group = min(_GROUP, len(rows))
    v = jnp.asarray(rows[: min(count, len(rows)) // group * group])
    for_noise, for_h = jax.random.split(seed_keys(recipe.seeds[:1], "health")[0])
    if noise:  # q was trained on noisy examples; discrete data have no noise
        v = v + noise * jax.random.normal(for_noise, v.shape, v.dtype)
    joint, far, further = (np.asarray(x) for x in _joints(for_h, model, posterior, v, group))
    found = look_at_latents(joint, learnt=has_parameters(posterior)) if model.h.size else []
    if recipe.parts is None and isinstance(model.v, Real):
        found += look_far_out(far, further, model.v.size)
    return found


@eqx.filter_jit
def _joints(key: PRNGKeyArray, model: EBLVM, posterior: Posterior, v: Array, group: int) -> tuple[Array, Array, Array]:
    """Return log p̃(v_i, h_j) in groups (groups, i, j), h_j drawn for example j, and log p̃(v_i, h_i) at both `_FAR`."""
    drawn = infer(model, posterior, v).hard().sample(key, 1)
    h = jax.tree.map(lambda x: x[:, 0], drawn)
    mean = jnp.mean(v, axis=0, keepdims=True)
    near, far, further = (features_of(model, mean + times * (v - mean)) for times in (1, *_FAR))
    grouped = jax.tree.map(lambda x: x.reshape(len(v) // group, group, *x.shape[1:]), (near, h))
    pairs = lambda f, h: jax.vmap(lambda f: jax.vmap(lambda h: model.log_joint(f, h))(h))(f)
    joint = jax.lax.map(lambda both: pairs(*both), grouped)
    return joint, jax.vmap(model.log_joint)(far, h), jax.vmap(model.log_joint)(further, h)
