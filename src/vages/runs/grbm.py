"""`vages train` of a GRBM: a folder, the numbers and the pictures; and a run that goes on where it stopped."""

from pathlib import Path
from typing import Any

from vages.recipes.pictures import draw
from vages.recipes.recipe import Recipe, check_recipe, load_data
from vages.recipes.training import Trained, train
from vages.runs.config import config_of, reopened
from vages.runs.reports import reported
from vages.training import RunFolder, by_writer, check_batch, check_same
from vages.training.cluster import digest


def run_recipe(recipe: Recipe, path: Path, *, resume: bool = False, **how: Any) -> Trained:
    """Train in a new folder, which holds config, environment, metrics, checkpoints, result, pictures and a page.

    With `resume`, the folder is that of a run by this recipe, or by one of fewer steps, which then goes on. `how` goes
    to `fit`.
    """
    check_recipe(recipe)
    check_batch(recipe.batch, how.get("mesh"))
    check_same(
        lambda: {
            "settings": {**config_of(recipe), "resume": resume},
            "data": {"sha256": digest(load_data(recipe, recipe.seed))},
        }
    )
    folder = by_writer(lambda: reopened(recipe, path) if resume else RunFolder(path, config_of(recipe)))
    if folder is None:
        return train(recipe, resume=resume, **how)
    with reported(folder):
        trained = train(recipe, folder=folder, resume=resume, **how)
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
