"""Test that an installed vages imports, runs its command and trains: `python smoke.py NEW_FOLDER`."""

import json
import math
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp

import vages

folder = Path(sys.argv[1])
command = str(Path(sys.executable).with_name("vages"))
package = Path(vages.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not what was installed in {sys.prefix}"
pages = ("app/report/page/style.css", "app/report/page/script.js", "app/explore/style.css")
for name in ("py.typed", "__init__.pyi", "data/digits.npz", *pages):
    assert (package / name).is_file(), f"{name} is not in the wheel"
for name in vages.__all__:
    assert getattr(vages, name) is not None
assert len(vages.data.load_digits().splits.train) == 1437


def vages_says(*words: str) -> str:
    """Return what the command prints."""
    return subprocess.run([command, *words], check=True, text=True, stdout=subprocess.PIPE, cwd=folder.parent).stdout


assert vages_says("--version") == f"vages {vages.__version__}\n" == f"vages {version('vages')}\n"
assert "train" in vages_says("--help")
small = ("--steps", "200", "--posterior-steps", "1", "--latents", "2")  # compiles faster
result = json.loads(vages_says("train", "checkerboard", *small, "--out", str(folder), "--json"))
assert result["steps"] == 200
assert math.isfinite(result["test_log_likelihood"]["mean"])
assert (folder / "density.png").is_file()
energy = lambda p, v, h: 0.5 * jnp.sum((v - p * h) ** 2)
model = vages.EnergyModel(energy, jnp.asarray(5.0), v=vages.Real(1), h=vages.Binary(1))
samples = vages.sample(jax.random.key(0), model, 1000)
assert abs(float(samples.v.mean()) - 2.5) < 0.5, samples.v.mean()
assert samples.worst_rhat < 1.05
print(f"vages {vages.__version__} with jax {version('jax')}: {result['test_log_likelihood']['mean']:.4f}")
