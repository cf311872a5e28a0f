"""`vages explore`: a page to play with what a run learnt."""

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
    """Play with a model in the browser: its latents, its chains, and what it completes.

    Of the presets of images, images; of any other, rows of the data on a plane of two coordinates, with the density
    where rows are points on a plane, draws, coordinates that are held, and walks between two rows.
    The page is served to this machine alone, until Ctrl-C. It needs pip install 'vages[explore]'.

    Args:
        run: the folder of a run; its newest whole checkpoint is taken.
        port: of the page on 127.0.0.1; 0 is a free one.
        no_browser: open no window.
        raw: the weights themselves, not their averages over training.
        data: the run's own data, if they were moved; others are refused.
        recipe: the file of the run's own recipe.
        recipe_changed: accept a file that is not as it was when the run was started.
    """
    from vages.bounds import Bounds, check_bounds

    check_bounds(port=(port, Bounds(0, 65535, "0 is a free one")))
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
            with waiting("looking at the data"):
                ready = vectors(loaded)
        serve(ready, port, browser=not no_browser, say=lambda text: print(text, flush=True))
    return 0
