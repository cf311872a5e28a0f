"""`vages explore`: an interactive page for a trained model."""

from importlib.util import find_spec

from vages.app.cli.opening import opened
from vages.app.cli.options import Data, RecipeFile, Run
from vages.app.output.console import bar, waiting


def explore(
    run: Run,
    /,
    port: int = 0,
    no_browser: bool = False,
    raw: bool = False,
    data: Data = None,
    recipe: RecipeFile = None,
    recipe_changed: bool = False,
) -> int:
    """Explore a model in the browser: its latents, chains and completions.

    For presets of images, the page shows images. For other runs, it shows rows of the data by two of their coordinates,
    samples, held coordinates and interpolations between two rows, and the density if rows have two coordinates.
    The page is served to this machine only, until Ctrl-C. It needs pip install 'vages[explore]'.

    Args:
        run: a run folder; its newest complete checkpoint is used.
        port: port of the page on 127.0.0.1; 0 chooses a free port.
        no_browser: do not open a browser window.
        raw: use the weights themselves, not their averages over training.
        data: path of the run's own data, if they were moved; other data are refused.
        recipe: the recipe file of the run.
        recipe_changed: accept a recipe file that has changed since the run was started.
    """
    from vages.bounds import Bounds, check_bounds

    check_bounds(port=(port, Bounds(0, 65535, "0 chooses a free port")))
    if find_spec("nicegui") is None:
        raise ValueError("explore: expected NiceGUI to be installed, got none; pip install 'vages[explore]'")
    from vages.app.explore.app import serve
    from vages.app.runs.playground import playground
    from vages.app.runs.vectors import vectors

    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded:
        if loaded.recipe.draws_images:
            with bar() as progress:
                ready = playground(loaded, progress=progress)
        else:
            with waiting("reading the data"):
                ready = vectors(loaded)
        serve(ready, port, browser=not no_browser, say=lambda text: print(text, flush=True))
    return 0
