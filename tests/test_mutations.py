"""The checks of the estimators detect wrong estimators: each row breaks one line, and a check must fail."""

import ast
import pathlib
import types

import pytest

import checks_of_estimators as checks
from vages import GRBM, estimators
from vages.objectives import dsm


def parsed(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


class Replacement(ast.NodeTransformer):
    """Replaces and counts all expressions of a function that have the structure of `old`."""

    def __init__(self, old: str, new: str):
        self.old, self.new, self.count = ast.dump(parsed(old)), new, 0

    def visit(self, node):
        if isinstance(node, ast.expr) and ast.dump(node) == self.old:
            self.count += 1
            return ast.copy_location(parsed(self.new), node)
        return self.generic_visit(node)


def mutant(module, function: str, old: str, new: str):
    """A copy of a module in which one expression of one function, `"Class.method"` or `"outer.inner"`, is replaced.

    Both are found in the syntax tree, so spaces, line breaks and comments do not matter. Each must occur exactly once.
    """
    tree = ast.parse(pathlib.Path(module.__file__).read_text())
    scope = tree
    for name in function.split("."):
        found = [node for node in ast.walk(scope) if getattr(node, "name", None) == name and hasattr(node, "body")]
        assert len(found) == 1, f"{name!r} of {function!r} is defined {len(found)} times in {module.__name__}"
        (scope,) = found
    replacement = Replacement(old, new)
    replacement.visit(scope)
    assert replacement.count == 1, f"{old!r} stands {replacement.count} times in {function} of {module.__name__}"
    copy = types.ModuleType(module.__name__ + "_mutant")
    exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), copy.__dict__)
    return copy


def closed_form(m):
    checks.vages_is_the_closed_form(m, GRBM, "float32", 1e-5)


def enumeration(m):
    checks.enumerated_vages_is_the_gradient_of_the_score(m, "float32", 1e-5)


def any_energy(m):
    checks.any_energy_is_differentiated_rightly(m, "float32", 1e-5)


def terms(m):
    checks.vages_is_the_sum_of_its_terms(m, "float32", 1e-5)


SURROGATE = "slopes.one_example"
COVARIANCE = "_mean(slope, weights) + (covariance - jax.lax.stop_gradient(covariance))"
PRODUCT = "share * slope_gap * log_joint_gap"


@pytest.mark.parametrize(
    ("function", "old", "new", "caught_by"),
    [
        pytest.param(
            SURROGATE,
            COVARIANCE,
            "_mean(slope, weights)",
            [closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased],
            id="no covariance term",
        ),
        pytest.param(
            SURROGATE,
            COVARIANCE,
            "_mean(slope, weights) - (covariance - jax.lax.stop_gradient(covariance))",
            [closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased],
            id="covariance with the wrong sign",
        ),
        pytest.param(
            SURROGATE,
            COVARIANCE,
            "covariance - jax.lax.stop_gradient(covariance)",
            [closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased],
            id="no expectation term",
        ),
        pytest.param(
            "_covariance_weights",
            "1 / (samples - 1)",
            "1 / samples",
            [closed_form, checks.vages_is_unbiased],
            id="1/L in place of 1/(L-1)",
        ),
        pytest.param(
            SURROGATE,
            "jax.lax.stop_gradient(slope - _mean(slope, weights))",
            "slope - _mean(slope, weights)",
            [closed_form, enumeration, any_energy],
            id="slopes not held fixed",
        ),
        pytest.param(
            SURROGATE,
            PRODUCT,
            "share * jax.lax.stop_gradient(slope) * log_joint",
            [closed_form, enumeration, any_energy],
            id="nothing centered",
        ),
        pytest.param(
            SURROGATE,
            PRODUCT,
            "share * slope_gap * jax.lax.stop_gradient(log_joint_gap)",
            [closed_form, enumeration, any_energy],
            id="the wrong factor held fixed",
        ),
    ],
)
def test_a_wrong_vages_is_caught(function, old, new, caught_by):
    broken = mutant(estimators, function, old, new)
    for check in caught_by:
        with pytest.raises(AssertionError):
            check(broken)


@pytest.mark.parametrize(
    ("function", "old", "new", "check"),
    [
        ("vages_dsm", "x[:, half:]", "x[:, :half]", checks.vages_dsm_is_unbiased),
        (
            "DSM.loss",
            "second.surrogate(model, encoding, z)",
            "first.surrogate(model, encoding, z)",
            checks.dsm_objective_is_unbiased,
        ),
    ],
)
def test_vaes_and_vages_sharing_their_samples_are_caught(function, old, new, check):
    broken = mutant(dsm, function, old, new)
    with pytest.raises(AssertionError):
        check(broken)


def test_an_unbroken_copy_passes():
    intact = mutant(estimators, "_covariance_weights", "1 / (samples - 1)", "1 / (samples - 1)")
    for check in (closed_form, enumeration, any_energy, terms, checks.vages_is_unbiased):
        check(intact)
    for check in (checks.vages_dsm_is_unbiased, checks.dsm_objective_is_unbiased):
        check(mutant(dsm, "vages_dsm", "x[:, half:]", "x[:, half:]"))


@pytest.mark.parametrize(
    ("function", "old"),
    [
        ("slopes.one_example", "slope + slope"),  # no such expression
        ("slopes.one_example", "_mean(slope, weights)"),  # it occurs twice
        ("no_such_function", "slope"),
        ("one_example", "slope"),  # several functions have this name
    ],
)
def test_a_mutant_without_its_place_is_no_mutant(function, old):
    with pytest.raises(AssertionError, match=r"times in"):
        mutant(estimators, function, old, "0")
