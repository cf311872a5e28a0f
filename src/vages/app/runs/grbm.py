"""`vages train` of a GRBM, new or resumed: a folder with the numbers and the pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vages.app.output.progress import ProgressBar
from vages.app.recipes.pictures import draw
from vages.app.recipes.sizes import check_recipe
from vages.app.recipes.training import Trained, train
from vages.app.report import figure_png
from vages.app.runs.config import config_of, reopened
from vages.app.runs.dataset import data_digests, read_grbm
from vages.app.runs.reports import reported
from vages.app.runs.saved import saved_step
from vages.app.runs.training_data import data_to_train_on
from vages.app.settings import GRBMSettings
from vages.data import TOYS
from vages.training import RunFolder, by_writer, check_batch, check_same
from vages.training.fit import Callback


def run_recipe(
    recipe: GRBMSettings,
    path: Path,
    *,
    resume: bool = False,
    where: str | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    **how: Any,
) -> Trained:
    """Train in a new folder, which holds config, environment, metrics, checkpoints, result, pictures and a page.

    With `resume`, the folder is that of a run by this recipe, or by one of fewer steps, which is continued; `where` is
    the place of its data, if they were moved. `progress` shows a bar. `callbacks` and `how` are passed on to `fit`.
    """
    drawn = recipe.data in TOYS
    if drawn:  # one dataset per seed: their memory is estimated before they are drawn
        check_recipe(recipe)
    data, dataset = data_to_train_on(recipe, path, read_grbm, resume=resume, where=where)
    if not drawn:
        check_recipe(recipe, data)
    check_batch(recipe.batch, how.get("mesh"))
    check_same(lambda: {"settings": {**config_of(recipe), "resume": resume}, "data": data_digests(dataset)})
    how |= {"resume": resume, "data_fingerprint": dataset["train"]}
    folder = by_writer(
        lambda: reopened(recipe, path, dataset) if resume else RunFolder(path, config_of(recipe), dataset)
    )
    if folder is None:
        return train(recipe, data, **how)
    with reported(folder, recipe.steps):
        with ProgressBar(recipe.steps, visible=progress, done=saved_step(path) if resume else 0) as bar:
            trained = train(recipe, data, folder=folder, callbacks=[*callbacks, bar], **how)
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
            folder.directory.write_bytes(f"{name}.png", figure_png(figure))
        return trained
