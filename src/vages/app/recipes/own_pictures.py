"""The picture of a model that was trained by a user's recipe: its loss."""

import numpy as np

from vages.app.recipes.trained import Drawn, Trained
from vages.app.report import curves_figure


def draw_own(trained: Trained) -> Drawn:
    """Draw the loss of all seeds."""
    if not any("loss" in row for row in trained.fitted.history):
        return Drawn({})
    steps, loss = trained.fitted.curve("loss")
    loss = loss if loss.ndim == 2 else loss[:, None]
    positive = np.all(loss > 0)
    label = "loss, log10" if positive else "loss"
    return Drawn({"curve": curves_figure({"training": (steps, np.log10(loss) if positive else loss)}, label)})
