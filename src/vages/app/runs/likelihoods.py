"""Likelihood rows of an assessment: exact, by forward and reverse AIS, or of a noise-conditional model by the ODE."""

import math
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from vages.app.recipes.units import Units
from vages.app.runs.assessment_rows import LONG, Row, Sizes, Stage, estimate_row
from vages.evaluation import (
    Estimate,
    LevelNormalizer,
    LogPartition,
    bits_per_dim,
    flow_likelihood,
    gaussian_log_density,
    level_normalizers,
    log_likelihood,
    log_partition,
)
from vages.evaluation.normalization import LEVELS
from vages.models import EBLVM, GRBM, InContext, NoiseConditionalEBLVM
from vages.posteriors import Posterior
from vages.samplers import Samples, SamplingWarning
from vages.samplers.samples import WORST_RHAT
from vages.training.health import NOTICED_LOG_Z

_SAMPLES = 256  # samples of q for each log p(v)
_SHORT = 16  # dimensions of v up to which chains for log Z are cheap for any energy
_ODE = 100  # examples whose likelihood is computed by the ODE
_STEPS = 50  # of the ODE
_ROUGH = 1.0  # standard error of a gap in nats, above which it is inconclusive
_GRAY = 1 / 255  # the step of gray levels
_FEW = 20  # the effective number of draws below which log Z is not reported


def likelihood_rows(
    key: PRNGKeyArray,
    model: EBLVM,
    posterior: Posterior,
    v: Array,
    sizes: Sizes,
    drawn: Samples | None = None,
    stage: Stage = str,
    units: Units | None = None,
) -> list[Row]:
    """Return the likelihood, or forward and reverse estimates if log Z is estimated; `drawn` are draws of the model.

    Values are for v as given. If v are standardized, `units` are those of the data, in which texts and bits are.
    """
    if (conditional := conditional_model(model)) is not None:
        if conditional.normalized:
            return _normalized_rows(key, conditional, posterior, v, stage, units)
        return _flow_rows(key, conditional, posterior, v, stage)
    stage("likelihood")
    if model.v.size > LONG:
        said = f"not estimated: AIS takes hours with {model.v.size:,} dimensions and is not informative"
        return [Row("log-likelihood", None, None, said)]
    cheap = has_cheap_moves(model)
    temperatures = sizes.annealing if cheap else max(2, 2 * sizes.annealing // 5)
    chains = max(2, sizes.annealing // (2 if cheap else 10))
    for_z, key = jax.random.split(key)
    with warnings.catch_warnings(record=True) as caught:  # also catches warnings of other threads
        warnings.simplefilter("always", SamplingWarning)
        log_z = log_partition(for_z, model, chains=chains, temperatures=temperatures, drawn=drawn)
        found = log_likelihood(key, model, posterior, v, samples=_SAMPLES, log_z=log_z)
    warned = any(issubclass(each.category, SamplingWarning) for each in caught)
    for each in caught:
        if not issubclass(each.category, SamplingWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    given = f"{len(v):,} examples without noise"
    means = f"the mean of log p(v), in nats, of {given}: higher is better, for models of the same data"
    if found.exact:
        return [Row("log-likelihood", found.mean, found.error, f"{means}; log Z is exact")]
    if not math.isfinite(found.forward + found.reverse):
        said = "the chains for log Z diverged: the energy may have no normalizer"
        return [Row("log-likelihood", math.nan, None, said)]
    mixed = drawn is None or drawn.worst_rhat <= WORST_RHAT
    doubt = "" if mixed and not warned else "; the chains for log Z have not mixed"
    return [
        Row("log-likelihood, log Z forward", found.forward, found.error, f"{means}; too high on average{doubt}"),
        Row(
            "log-likelihood, log Z reverse",
            found.reverse,
            found.error,
            f"of the same examples, with reverse log Z: too low on average{doubt}",
        ),
        _gap_row(found.log_partition),
    ]


def has_cheap_moves(model: EBLVM) -> bool:
    """Whether moves are cheap enough for long chains."""
    return isinstance(model, GRBM) or model.v.size <= _SHORT


def _gap_row(log_z: LogPartition) -> Row:
    """Return the gap between the two estimates of log Z, which is not part of either's standard error."""
    error = math.hypot(log_z.forward.error, log_z.reverse.error)
    if not error <= _ROUGH:
        said = "too imprecise to tell whether the two agree; log_likelihood(…, temperatures=5000) is more precise"
    elif abs(log_z.gap) <= 3 * error:
        said = "within its error: the two agree, unless both miss the same mode"
    elif log_z.gap > 0:
        said = "above its error: the true one is between them; log_likelihood(…, temperatures=5000) brings them closer"
    else:
        said = "below 0: the chains from which the reverse estimate starts do not sample the model; see R̂"
    return Row("gap of log Z, reverse less forward, nats", log_z.gap, error, said)


def gaussian_rows(model: EBLVM, train: Array, v: Array, noise: float, rows: list[Row]) -> list[Row]:
    """Return the likelihood of a Gaussian with the mean and covariance of noisy training data, to compare with `rows`.

    Empty for long v, if `rows` have no finite likelihood, or if the covariance is nearly singular.
    """
    found = next((row for row in rows if row.name.startswith("log-likelihood")), None)
    if found is None or found.value is None or not math.isfinite(found.value) or model.v.size > LONG:
        return []
    conditional = conditional_model(model)
    noisy = conditional is not None and _of_images(model)  # like its examples
    noise = noise if conditional is None else float(conditional.sigma_min)
    logs = gaussian_log_density(train, v, noise, noisy=noisy)
    if logs is None:
        return []
    of_gaussian = Estimate.of(jnp.asarray(logs))
    said = "in nats, of a Gaussian with the mean and covariance of the noisy data"
    better, error = of_gaussian.mean - found.value, math.hypot(of_gaussian.error, found.standard_error or 0.0)
    if better > 3 * error:
        said += f", better than the model by {better:.3g} ± {error:.2g} nats: check the model's samples"
    return [estimate_row("log-likelihood of a Gaussian", of_gaussian, said)]


def conditional_model(model: EBLVM) -> NoiseConditionalEBLVM | None:
    """Return the noise-conditional model of which this is a level, or None."""
    above = model.model if isinstance(model, InContext) else None
    return above if isinstance(above, NoiseConditionalEBLVM) else None


def _of_images(model: EBLVM) -> bool:
    return len(model.v.shape) == 3


def _at_lowest_level(key: PRNGKeyArray, model: NoiseConditionalEBLVM, v: Array) -> Array:
    """Add noise of the lowest level to images, as it is not small compared to a gray level; keep other examples."""
    return v + model.sigma_min * jax.random.normal(key, v.shape, v.dtype) if _of_images(model) else v


def _flow_rows(
    key: PRNGKeyArray, model: NoiseConditionalEBLVM, posterior: Posterior, v: Array, stage: Stage
) -> list[Row]:
    """Return the likelihood by the ODE, from whose distribution `vages sample` draws, and the effect of half the steps.

    The density p̃ of one level can be normalized, but samples are not drawn from it: it may have most of its mass far
    from the data, where the energy was never trained.
    """
    if model.v.size > LONG:
        said = f"not estimated: slow with {model.v.size:,} dimensions; vages.bits_per_dim computes it in Python"
        return [Row("log-likelihood", None, None, said)]
    if model.h.size and not model.h.continuous:
        return [Row("log-likelihood", None, None, "not estimated: the ODE needs continuous latents, or none")]
    stage("likelihood by the ODE")
    for_noise, for_flow = jax.random.split(key)
    few = _at_lowest_level(for_noise, model, v[:_ODE])
    by_ode = lambda steps: flow_likelihood(for_flow, model, posterior, few, samples=4, steps=steps).value
    fine, coarse = by_ode(_STEPS), by_ode(_STEPS // 2)
    given = f"{len(few):,} examples, noise of {model.sigma_min:.3g}"
    means = f"the mean of log p(v), in nats, of {given}, for the distribution of the samples"
    less = f"of the same examples: 0 if {_STEPS} steps are enough"
    return [
        estimate_row("log-likelihood by the ODE", Estimate.of(jnp.asarray(fine)), f"{means}: higher is better"),
        estimate_row(f"{_STEPS // 2} steps less {_STEPS}, nats", Estimate.of(jnp.asarray(coarse - fine)), less),
    ]


def _normalized_rows(
    key: PRNGKeyArray, model: NoiseConditionalEBLVM, posterior: Posterior, v: Array, stage: Stage, units: Units | None
) -> list[Row]:
    """Return the likelihood in one pass, at the lowest level, and checks of it: by the ODE, and log Z at some levels.

    Noise of that level is added to images, and their bits per dimension are reported as well.
    """
    keys, clean = jax.random.split(key, 5), v
    v = _at_lowest_level(keys[3], model, v)
    few = v[: min(len(v), _ODE)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # reported in the rows
        stage("likelihood in one pass")
        found = log_likelihood(keys[0], model, posterior, v, samples=_SAMPLES)
        stage("likelihood by the ODE")
        flow = flow_likelihood(keys[1], model, posterior, few, samples=4)
    quality = "" if found.density.exact else f"; effective share of q's samples {_share(found.density.ess):.2f}"
    given = f"{len(v):,} examples in one pass, noise of {model.sigma_min:.3g}"
    means = f"the mean of log p(v), in nats, of {given}: higher is better"
    rows = [Row("log-likelihood", found.mean, found.error, f"{means}{quality}")]
    if v is not clean:
        stage("bits per dimension")
        how = {
            "width": _GRAY if units is None else _GRAY / units.scale,
            "noise": "gaussian",
            "one_pass": True,
            "samples": _SAMPLES,
        }
        bits = bits_per_dim(keys[4], model, posterior, clean, **how)
        rows.append(estimate_row("bits per dimension", bits, "of gray levels of 1 / 255, in one pass: lower is better"))
    one_pass = np.asarray(found.density.value[: len(few)], np.float64)
    first, second = (np.argsort(np.argsort(values)) for values in (flow.value, one_pass))
    alike = float(np.corrcoef(first, second).min())
    lower = 0.0 if units is None else units.log_volume
    said = f"of the first {len(few):,} of these examples, in one pass {one_pass.mean() - lower:.4g} nats"
    rows.append(estimate_row("log-likelihood by the ODE", Estimate.of(jnp.asarray(flow.value)), said))
    said = f"of the same {len(few):,} examples, 0 if both are correct; rank correlation {alike:.3f}"
    rows.append(estimate_row("one pass less ODE, nats", Estimate.of(jnp.asarray(one_pass - flow.value)), said))
    stage(f"log Z at {LEVELS} levels")
    levels = level_normalizers(keys[2], model, posterior, v)
    if (doubt := _off(levels[0])) is not None:
        rows[0] = replace(rows[0], means=f"{rows[0].means}; {doubt}")
    return rows + [_level_row(level) for level in levels]


def _off(lowest: LevelNormalizer) -> str | None:
    """Return a remark if the density at the lowest level does not integrate to 1, else None."""
    if not (lowest.ess >= _FEW and abs(lowest.value) > max(NOTICED_LOG_Z, 3 * lowest.error)):
        return None
    return f"too {'high' if lowest.value > 0 else 'low'} by {abs(lowest.value):.2g} nats, log Z of this level"


def _level_row(level: LevelNormalizer) -> Row:
    name = f"log Z at noise of {level.sigma:.3g}"
    how = "on a grid" if math.isinf(level.ess) else f"from draws with an effective number of {level.ess:.0f}"
    how += "" if level.share >= 0.5 else f", too low, as only {100 * level.share:.2g} % of q's samples count"
    if math.isinf(level.error) or level.ess < _FEW:
        return Row(name, None, None, f"{how}, too few {'draws' if math.isfinite(level.error) else 'examples'} to tell")
    return Row(name, level.value, level.error or None, f"{how}: 0 nats if the model is normalized")


def _share(ess: Array) -> float:
    return float(np.median(np.asarray(ess))) / _SAMPLES
