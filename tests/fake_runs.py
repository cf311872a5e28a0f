"""Folders like those of runs and experiments, written without training."""

import json
import math
from pathlib import Path

import numpy as np

from small_recipes import with_settings
from vages.app.recipes import as_recipe
from vages.app.report import image_grid, scatter_figure, sheet_png
from vages.app.runs import config_of
from vages.app.settings import CHECKERBOARD, DEEP_PRESETS

ENVIRONMENT = {"python": "3.11.7", "vages": "0.1.0", "jax": "0.10.2", "device": "cpu", "devices": 1, "cores": 2}
HOSTILE = "</script><script>window.injected=true</script><img src=x onerror=window.injected=true>'\"&\u202e\x00"


def write(folder: Path, name: str, value) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(value))


def write_rows(folder: Path, name: str, rows) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def metric_rows(count: int, seeds: int | None, noise: int = 0) -> list[dict]:
    """A loss that falls and a likelihood that rises, of one run or of several seeds."""
    draws = np.random.default_rng(noise).normal(size=(count, seeds or 1))
    rows = []
    for i in range(count):
        loss, likelihood = 400 * np.exp(-i / count) + draws[i], -1 + 1.2 * i / count + 0.1 * draws[i]
        plain = lambda x: x.tolist() if seeds else float(x[0])
        step = 100 * (i + 1)
        rows.append({"loss": plain(loss), "step": step, "seconds": 0.1 * i, "test_log_likelihood": plain(likelihood)})
    return rows


def grbm_run(folder: Path, *, rows=40, seeds=1, **settings) -> Path:
    """A finished run of a GRBM on the checkerboard, with its pictures."""
    logged = metric_rows(rows, seeds)
    settings = {"steps": 100 * rows, "seeds": seeds} | settings
    write(folder, "config.json", with_settings(config_of(as_recipe(CHECKERBOARD)), **settings))
    write(folder, "environment.json", ENVIRONMENT)
    write_rows(folder, "metrics.jsonl", logged)
    each = logged[-1]["test_log_likelihood"]
    likelihood = {"mean": float(np.mean(each)), "each seed": each}
    done = {"steps": 100 * rows, "interrupted": False, "seconds": 12.5}
    write(folder, "result.json", {"test_log_likelihood": likelihood, **done})
    write_rows(folder, "events.jsonl", [event("started"), event("finished", step=100 * rows)])
    points = np.random.default_rng(1).uniform(size=(200, 2))
    scatter_figure({"data": points}, (0.0, 1.0, 0.0, 1.0)).savefig(folder / "density.png", dpi=60)
    faces = np.random.default_rng(2).uniform(size=(20, 28, 20))
    image_grid({"test data": faces, "samples": faces[::-1]}).savefig(folder / "samples.png", dpi=60)
    return folder


def deep_run(folder: Path, **settings) -> Path:
    """A deep run with all results that commands make from it: samples, a walk, completions, an embedding, numbers."""
    settings = {"steps": 3000} | settings
    write(folder, "config.json", with_settings(config_of(as_recipe(DEEP_PRESETS["digits-paper"])), **settings))
    write(folder, "environment.json", ENVIRONMENT)
    write_rows(folder, "metrics.jsonl", metric_rows(30, None))
    chains = {"count": 3, "of": 100}
    write(
        folder,
        "result.json",
        {"steps": 3000, "interrupted": False, "seconds": 70.0, "loss": 1.5, "diverged chains": chains},
    )
    refused = event("checkpoint refused", why="step-2: expected a SHA-256 sum, got another")
    write_rows(
        folder, "events.jsonl", [event("started"), refused, event("resumed", step=1), event("finished", step=3000)]
    )
    images = np.random.default_rng(0).uniform(size=(20, 1, 8, 8))
    (folder / "samples.png").write_bytes(sheet_png(images, columns=5))
    about = {
        "run": "r",
        "checkpoint": 3000,
        "weights": "averages",
        "seed": 7,
        "diverged chains": {"count": 0, "of": 20},
    }
    for number in (1, 2, 11):
        made = folder / f"samples-{number}"
        write(made, "result.json", about | {"protocol": f"protocol of {number}"})
        (made / "samples.png").write_bytes(sheet_png(images, columns=5))
    walk(folder / "interpolation-1", about)
    write(folder / "inpainting-1", "result.json", about | {"protocol": "hidden pixels"})
    (folder / "inpainting-1" / "inpainting.png").write_bytes(sheet_png(images, columns=10))
    accuracy = {"accuracy": 0.71234567, "standard_error": 0.03, "converged": True}
    probe = {"trained on": 80, "tested on": 20, "means": accuracy, "pixels": accuracy, "most frequent class": 0.1}
    write(folder / "embedding-1", "result.json", about | {"linear probe": probe})
    means = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32)
    row = {"name": "KSD p-value", "value": 0.25, "standard_error": None, "means": "of a model that is right"}
    write(folder / "evaluation-1", "result.json", {"rows": [row, "no row"], "seed": 0, "checkpoint": 3000})
    kid = {"mean": 0.0212, "deviation": 0.001, "subsets": 100, "size": 1000}
    real = {"images": "digits:test", "n": 180, "fid": 3.0625, "kid": kid}
    quality = {"metric": "FID-10k", "fid": 45.6789, "kid": kid, "real": real, "weights": "67ab", "environment": {}}
    write(folder / "quality-1", "result.json", quality | {"sampling": {**about, "protocol": "joint", "seed": 4}})
    for name in ("evaluation.png", "chains.png"):
        (folder / "evaluation-1" / name).write_bytes(sheet_png(images, columns=10))
    np.savez(folder / "embedding-1" / "embedding.npz", test=means, test_labels=np.arange(60) % 10)
    return folder


def walk(folder: Path, about: dict, moments: int = 6, chains: int = 4, side: int = 8) -> Path:
    """An interpolation in which every image has a different gray level."""
    grays = np.linspace(0, 1, moments * chains).reshape(moments, chains, 1, 1, 1)
    trajectory = np.broadcast_to(grays, (moments, chains, 1, side, side)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "interpolation.npz", trajectory=trajectory, factors=np.linspace(1, -1, chains, dtype=np.float32))
    steps = [450 * (i + 1) for i in range(moments)]
    write(folder, "result.json", about | {"snapshots": steps, "protocol": "v given h = factor · m"})
    return folder


def experiment(folder: Path, **changes) -> Path:
    """Results of an experiment: a claim that holds, one that does not, and one that is invalid."""
    claims = [
        {"claim": "VaGES beats BiDSM (gain)", "value": 1.23456789012, "bound": 1.0, "holds": True},
        {"claim": "VaGES takes less time (ratio)", "value": 1.5, "bound": 0.4, "holds": False},
        {"claim": "the bias stays within its bound", "value": math.nan, "bound": 1.0, "holds": False},
    ]
    curves = {name: {"steps": [10, 20, 30], "curve": [level, level + 1, level + 2]} for level, name in enumerate("ab")}
    record = {"experiment": "fig1", "quick": True, "seed": 3, "sound": False, "claims": claims, "minutes": 2.5}
    record |= {"settings": {"h_dim": 400, "inner": {"rate": 1e-5}}, "environment": ENVIRONMENT}
    wide = {"L": 2, "ms": 7.9265, **{f"column {i}": i for i in range(12)}}
    record |= {"measurements": {**curves, "rows": [wide], "many": list(range(1000))}}
    write(folder, "result.json", record | changes)
    points = np.random.default_rng(1).uniform(size=(50, 2))
    scatter_figure({"fig": points}, (0.0, 1.0, 0.0, 1.0)).savefig(folder / "fig1.png", dpi=60)
    return folder


def event(name: str, **about) -> dict:
    return {"time": "2026-01-02T03:04:05Z", "event": name, **about}
