"""Requirements for a release: one version, notes, a citation, a license, and dependencies with declared bounds."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vages
from vages import environment

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPORTED_AS = {"pillow": "PIL", "ml-dtypes": "ml_dtypes", "lazy-loader": "lazy_loader"}


def read(name):
    return (ROOT / name).read_text()


def declared(requirements):
    names = (re.split(r"[^A-Za-z0-9-]", one)[0] for one in requirements)
    return {IMPORTED_AS.get(name, name) for name in names}


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]
    stands = re.findall(r'^__version__ = "(.+)"$', read("src/vages/__init__.py"), re.M)
    assert stands == [vages.__version__] == [version("vages")]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/vages/__init__.py"


def test_notes_and_citation_are_of_this_version():
    newest, state = re.findall(r"^## \[(.+?)\] - (.+)$", read("CHANGELOG.md"), re.M)[0]
    citation = read("CITATION.cff")
    assert newest == vages.__version__.removesuffix(".dev0")
    assert (state == "unreleased") == vages.__version__.endswith(".dev0")
    assert re.findall(r"^version: (.+)$", citation, re.M) == [vages.__version__]
    assert re.findall(r"^license: (.+)$", citation, re.M) == [PROJECT["project"]["license"]]


def test_the_paper_is_cited():
    citation = read("CITATION.cff")
    title = re.findall(r"^  title: (.+)$", citation, re.M)
    assert title == ["Variational (Gradient) Estimate of the Score Function in Energy-based Latent Variable Models"]
    authors = re.findall(r"given-names: (.+)\n +family-names: (.+)", citation)
    names = [" ".join(author) for author in authors]
    assert names == ["Fan Bao", "Kun Xu", "Chongxuan Li", "Lanqing Hong", "Jun Zhu", "Bo Zhang"]
    assert re.search(r"^  year: 2021$", citation, re.M)


def test_the_licence_is_there():
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert PROJECT["project"]["license-files"] == ["LICENSE"]
    assert "Apache License" in read("LICENSE")[:200]


def test_the_notes_name_every_command():
    from vages.app.cli.commands import COMMANDS

    for name in COMMANDS:
        assert f"`{name}`" in read("CHANGELOG.md")


def test_every_library_that_is_imported_is_declared():
    """Modules import only required libraries at the top; functions may also import those of extras."""
    always = declared(PROJECT["project"]["dependencies"])
    extras = {name for extra in PROJECT["project"]["optional-dependencies"].values() for name in declared(extra)}
    explore = declared(PROJECT["project"]["optional-dependencies"]["explore"])
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text())
        optional = explore if path.is_relative_to(ROOT / "src" / "vages" / "app" / "explore") else set()
        allowed = always | optional | set(sys.stdlib_module_names) | {"vages"}
        for nodes, names in ((tree.body, allowed), (ast.walk(tree), allowed | extras)):
            assert modules(nodes) <= names, path


def modules(nodes):
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found


def test_dependencies_have_the_lower_bounds_that_are_tried():
    lines = subprocess.run([sys.executable, ROOT / ".ci" / "lower_bounds.py"], capture_output=True, text=True).stdout
    for one in PROJECT["project"]["dependencies"]:
        assert re.fullmatch(r"[a-z-]+>=[0-9.]+", one), one
        assert one.replace(">=", "==") in lines.splitlines()


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_are_there(name):
    for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
        assert target.startswith("https://") or (ROOT / target).is_file(), target


def test_the_objective_to_start_from_is_one_and_learns():
    (block,) = re.findall(r"```python\n(.*?)```", read("CONTRIBUTING.md"), re.S)
    names = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    objective = names["maximum_likelihood"]
    keys = jax.random.split(jax.random.key(0), 2)
    model = vages.GRBM.init(keys[0], 2, 3)
    data = np.random.default_rng(0).normal(1.0, 0.5, (300, 2)).astype(np.float32)
    learner = vages.Learner(objective, learning_rate=1e-2)
    fitted = vages.fit(
        keys[1], model, vages.ExactPosterior(), jnp.asarray(data), learner, steps=300, batch=300, chunk=1
    )
    loss = fitted.curve("loss")[1]
    np.testing.assert_allclose(loss[0], -log_likelihood(model, data), rtol=1e-5)
    assert loss[-1] < loss[0] - 0.3
    np.testing.assert_allclose(-log_likelihood(fitted.state.model, data), loss[-1], atol=1e-2)


def log_likelihood(model, data):
    """A sum over a fine grid of the plane and all states of h, in float64, without the model's closed forms."""
    h = np.asarray([[i >> k & 1 for k in range(3)] for i in range(8)], np.float32)
    axis = np.linspace(-8, 8, 321, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)

    @jax.jit
    def joint(v):
        return jax.vmap(lambda v: jax.vmap(lambda h: model.log_joint(model.features(v), h))(h))(v)

    marginal = lambda v: np.logaddexp.reduce(np.asarray(joint(v), np.float64), axis=1)
    log_partition = np.logaddexp.reduce(marginal(grid)) + 2 * np.log(axis[1] - axis[0])
    return marginal(data).mean() - log_partition


def test_sources_that_are_not_installed_record_their_version(monkeypatch):
    def missing(package):
        if package == "vages":
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(environment, "version", missing)
    assert environment.versions()["vages"] == vages.__version__
