"""`vages train`: a recipe, a folder, the numbers and the pictures."""

from dataclasses import asdict
from pathlib import Path

from vages.recipes.draw import draw
from vages.recipes.recipe import Recipe, check_recipe
from vages.recipes.training import Trained, train
from vages.training import RunFolder


def run_recipe(recipe: Recipe, path: Path, *, progress: bool = False) -> Trained:
    """Train in a new folder, which holds config, environment, metrics, result and pictures at the end."""
    check_recipe(recipe)
    folder = RunFolder(path, asdict(recipe))
    trained = train(recipe, folder=folder, progress=progress)
    likelihood = trained.test_log_likelihood
    folder.save(
        "result",
        {
            "test_log_likelihood": {"mean": float(likelihood.mean()), "each seed": likelihood.tolist()},
            "steps": trained.fitted.step,
            "interrupted": trained.fitted.interrupted,
            "seconds": trained.fitted.seconds,
        },
    )
    for name, figure in draw(trained).items():
        figure.savefig(folder.path / f"{name}.png", dpi=150)
    return trained
