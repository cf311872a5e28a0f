"""The checks of the estimators catch estimators that are wrong: each row breaks one line, and a check must fail."""

import pathlib
import types

import pytest

import checks_of_estimators as checks
from vages import GRBM, estimators
from vages.objectives import dsm


def mutant(module, old: str, new: str):
    """A copy of the module with one piece of its source replaced."""
    source = pathlib.Path(module.__file__).read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
    copy = types.ModuleType(module.__name__ + "_mutant")
    exec(compile(source.replace(old, new), module.__file__, "exec"), copy.__dict__)
    return copy


def closed_form(m):
    checks.vages_is_the_closed_form(m, GRBM, "float32", 1e-5)


def enumeration(m):
    checks.enumerated_vages_is_the_gradient_of_the_score(m, "float32", 1e-5)


def any_energy(m):
    checks.any_energy_is_differentiated_rightly(m, "float32", 1e-5)


def terms(m):
    checks.vages_is_the_sum_of_its_terms(m, "float32", 1e-5)


COVARIANCE = "return _mean(slope, weights) + (covariance - jax.lax.stop_gradient(covariance))"


@pytest.mark.parametrize(
    ("old", "new", "caught_by"),
    [
        pytest.param(
            COVARIANCE,
            "return _mean(slope, weights)",
            [closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased],
            id="no covariance term",
        ),
        pytest.param(
            COVARIANCE,
            "return _mean(slope, weights) - (covariance - jax.lax.stop_gradient(covariance))",
            [closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased],
            id="covariance with the wrong sign",
        ),
        pytest.param(
            COVARIANCE,
            "return covariance - jax.lax.stop_gradient(covariance)",
            [closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased],
            id="no expectation term",
        ),
        pytest.param(
            "1 / (samples - 1)",
            "1 / samples",
            [closed_form, checks.vages_is_unbiased],
            id="1/L in place of 1/(L-1)",
        ),
        pytest.param(
            "slope_gap = jax.lax.stop_gradient(slope - _mean(slope, weights))",
            "slope_gap = slope - _mean(slope, weights)",
            [closed_form, enumeration, any_energy],
            id="slopes not held fixed",
        ),
        pytest.param(
            "slope_gap * log_joint_gap)",
            "jax.lax.stop_gradient(slope) * log_joint)",
            [closed_form, enumeration, any_energy],
            id="nothing centred",
        ),
        pytest.param(
            "slope_gap * log_joint_gap)",
            "slope_gap * jax.lax.stop_gradient(log_joint_gap))",
            [closed_form, enumeration, any_energy],
            id="the wrong factor held fixed",
        ),
    ],
)
def test_a_wrong_vages_is_caught(old, new, caught_by):
    broken = mutant(estimators, old, new)
    for check in caught_by:
        with pytest.raises(AssertionError):
            check(broken)


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("Latents(h[:, half:], None)", "Latents(h[:, :half], None)", checks.vages_dsm_is_unbiased),
        (
            "_descend(model, noised, score, second)",
            "_descend(model, noised, score, first)",
            checks.dsm_objective_is_unbiased,
        ),
    ],
)
def test_vaes_and_vages_sharing_their_samples_are_caught(old, new, check):
    with pytest.raises(AssertionError):
        check(mutant(dsm, old, new))


def test_an_unbroken_copy_passes():
    intact = mutant(estimators, "1 / (samples - 1)", "1 / (samples - 1)")
    for check in (closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased):
        check(intact)
    for check in (checks.vages_dsm_is_unbiased, checks.dsm_objective_is_unbiased):
        check(mutant(dsm, "h[:, half:]", "h[:, half:]"))
