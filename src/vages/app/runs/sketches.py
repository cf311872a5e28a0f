"""Small pictures of a model at a few steps of its training, and the section of the page that shows them."""

import re
from typing import Any

import jax

from vages.app.recipes import Examples, Recipe
from vages.app.report.page.document import Section
from vages.app.report.page.embedded import figure
from vages.app.report.page.markup import element
from vages.app.report.page.reading import Reader
from vages.training import LearnerState, RunFolder, one_seed, seed_keys
from vages.training.selection import weights_of

_PARTS = (1 / 8, 1 / 4, 1 / 2, 1)  # fractions of the iterations
_SHORT = 30.0  # seconds of training, below which there are no sketches
_NAME = re.compile(r"progress-(\d{1,12})\.png")
_MOST = 8  # on the page


class Sketches:
    """Callback that writes progress-STEP.png after an eighth, a quarter, half and all of the iterations.

    Short trainings have no sketches. `done` is the number of iterations before a resume. The random key is separate, so
    that sketches do not change training.
    """

    def __init__(self, folder: RunFolder, recipe: Recipe, data: Examples, done: int = 0):
        self._folder, self._recipe, self._data = folder, recipe, data
        self._sketch = None if recipe.parts is None or jax.process_count() > 1 else recipe.parts.sketch
        self._steps, self._drawn = recipe.settings.steps, done
        self._first: tuple[int, float] | None = None  # the end of the first chunk, which is mostly compilation

    def __call__(self, record: dict[str, Any], state: LearnerState) -> None:
        """Draw a picture if one is due."""
        if self._sketch is None or not self.is_due(record["step"], record["seconds"]):
            return
        weights, recipe = weights_of(state), self._recipe
        both = weights.model, weights.posterior
        model, posterior = one_seed(both) if recipe.stacked else both
        key = seed_keys(recipe.seeds[:1], "progress")[0]  # the same at each step, so that only the model differs
        content = self._sketch(key, recipe, model, posterior, self._data.of_seed(0))
        if content is not None:
            self._folder.directory.write_bytes(f"progress-{record['step']}.png", content)

    def is_due(self, step: int, seconds: float) -> bool:
        """Whether a picture is due at the end of this chunk; to be called once for each chunk."""
        if self._first is None:
            self._first = step, seconds
        begin, began = self._first
        expected = seconds + (self._steps - step) * (seconds - began) / max(step - begin, 1)  # of all of training
        if expected < _SHORT or not any(self._drawn < part * self._steps <= step for part in _PARTS):
            return False
        self._drawn = step
        return True


def sketched_step(name: str) -> int | None:
    """Return the step of a sketch by its file name, or None."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def sketch_sections(reader: Reader) -> list[Section]:
    """Return a section with the sketches of a run, in the order of their steps."""
    steps = sorted((step, name) for name in reader.names(".png") if (step := sketched_step(name)) is not None)
    pictures = [(step, reader.picture(name)) for step, name in steps[-_MOST:]]
    shown = [
        figure(picture, f"The model after {step:,} iterations", f"{step:,} iterations", pixels=True)
        for step, picture in pictures
        if picture is not None
    ]
    return [Section("During training", element("div", *shown, class_="strip"))] if shown else []
