"""`vages sample`, `vages interpolate`, `vages inpaint` and `vages embed`: what a run learnt."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from vages.app.cli.opening import opened
from vages.app.cli.options import Data, RecipeFile, Run, Sampling, given, new
from vages.app.output.console import bar, print_json, say

if TYPE_CHECKING:
    from vages.app.runs import Kept
    from vages.app.runs import Run as Loaded

Own = Annotated[
    str | None,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="[FILE|FOLDER]", help_behavior_hint="(default: the run's own examples)"),
]
OneExample = "INT|FILE[:ROW]"
Mask = Annotated[str, tyro.conf.arg(metavar="half|left|centre|0,3,5|FILE")]


def sample(
    run: Run,
    /,
    count: int = 100,
    latents: Literal["posterior", "joint"] = "posterior",
    sampling: Sampling = None,
    label: Annotated[str | int | None, given("NAME|INT", "of all classes")] = None,
    guidance: Annotated[float | None, given("FLOAT", "1")] = None,
    seed: int = 0,
    raw: bool = False,
    data: Data = None,
    recipe: RecipeFile = None,
    recipe_changed: bool = False,
    out: Annotated[Path | None, new("samples")] = None,
    json: bool = False,
) -> int:
    """Draw examples from a run's model.

    Of a noise-conditional model, images by Heun's method; of the paper's deep models, images by annealed Langevin
    dynamics; of any other, draws of p(v, h) by `vages.sample`, with R̂ and effective sample size. OUT gets samples.png,
    samples.npz (v, h, and which chains diverged) and result.json, which says how they were drawn.

    Args:
        run: the folder of a run; its newest whole checkpoint is taken.
        count: how many.
        latents: of the posterior means of random training images, the paper's way, or drawn jointly with the image.
        sampling: length of the schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        label: the class to draw from, by its folder's name or its number, of a run that was trained with --labels.
        guidance: how far to follow the label; more than 1 is further from the other classes than the data are.
        seed: of all random numbers.
        raw: the weights themselves, not their averages over training.
        data: the run's own data, if they were moved; others are refused.
        recipe: the file of the run's own recipe.
        recipe_changed: accept a file that is not as it was when the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import sample_images
    from vages.app.runs.draws import draw
    from vages.app.runs.flows import draw_images

    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded, bar() as progress:
        if loaded.recipe.annealed is None:
            loaded = _with_sampling(loaded, sampling)
            _refuse(loaded, latents=None if latents == "posterior" else latents)
            if loaded.recipe.flows:
                kept = draw_images(loaded, out, count=count, label=label, guidance=guidance, seed=seed)
            else:
                _refuse_labels(loaded, label=label, guidance=guidance)
                kept = draw(loaded, out, count=count, seed=seed)
        else:
            _refuse_labels(loaded, label=label, guidance=guidance)
            how: dict[str, Any] = {"latents": latents, "sampling": sampling, "progress": progress}
            kept = sample_images(loaded, out, count=count, seed=seed, **how)
    return _told(kept, json)


def interpolate(
    run: Run,
    /,
    image: Annotated[str | None, given(OneExample, "chosen by the seed")] = None,
    between: Annotated[tuple[str, str] | None, given(f"{OneExample} {OneExample}", "chosen by the seed")] = None,
    rows: int = 10,
    columns: int = 10,
    ratio: Annotated[float | None, given("FLOAT", "the paper's: 5 for cifar10, 3 for celeba, else 1")] = None,
    sampling: Sampling = None,
    seed: int = 0,
    raw: bool = False,
    data: Data = None,
    recipe: RecipeFile = None,
    recipe_changed: bool = False,
    out: Annotated[Path | None, new("interpolation")] = None,
    json: bool = False,
) -> int:
    """Draw examples along a line in the latents of a run's model.

    Of a noise-conditional model, images on the way between two images, by the noise that they come from. Of any other
    model, h goes from the posterior mean of one example to that of another. Of the paper's deep models, a row of the
    picture is a chain, a column a moment; all chains have the same start and the same noise, and differ by h alone;
    without --between, h goes from RATIO m to -RATIO m, where m is the posterior mean of one image. OUT gets
    interpolation.png, interpolation.npz and result.json.

    An example is the number of a training example, from 0, or a file: an image, or a row of a .npy, .npz or .csv file,
    as FILE:ROW from 0. The middle of an image (.png, .jpg, .bmp) is scaled to the model's size, in grey or RGB as the
    model's images are.

    Args:
        run: the folder of a run; its newest whole checkpoint is taken.
        image: of the paper's deep models, an image to walk along.
        between: two examples.
        rows: values of h.
        columns: moments; the last is the image.
        ratio: how far.
        sampling: length of the schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        seed: of all random numbers.
        raw: the weights themselves, not their averages over training.
        data: the run's own data, if they were moved; others are refused.
        recipe: the file of the run's own recipe.
        recipe_changed: accept a file that is not as it was when the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import interpolate
    from vages.app.runs.draws import walk
    from vages.app.runs.flows import walk_images

    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded, bar() as progress:
        if loaded.recipe.annealed is None:
            loaded = _with_sampling(loaded, sampling)
            _refuse(loaded, image=image, columns=None if columns == 10 else columns, ratio=ratio)
            kept = (walk_images if loaded.recipe.flows else walk)(loaded, out, between=between, rows=rows, seed=seed)
        else:
            how: dict[str, Any] = {"image": image, "between": between, "rows": rows, "columns": columns, "ratio": ratio}
            kept = interpolate(loaded, out, **how, sampling=sampling, seed=seed, progress=progress)
    return _told(kept, json)


def inpaint(
    run: Run,
    file: Own = None,
    /,
    count: Annotated[int | None, given("INT", "10, or all of FILE")] = None,
    tries: int = 3,
    mask: Mask = "half",
    sampling: Sampling = None,
    seed: int = 0,
    raw: bool = False,
    data: Data = None,
    recipe: RecipeFile = None,
    recipe_changed: bool = False,
    out: Annotated[Path | None, new("inpainting")] = None,
    json: bool = False,
) -> int:
    """Complete images, or other examples, of which a part is hidden.

    The hidden entries and h are drawn given the others, and have not seen what was hidden. The rows of the picture
    are the images, what was shown of them, and the completions. OUT gets inpainting.png, inpainting.npz and
    result.json. The middle of an image in a file (.png, .jpg, .bmp) is scaled to the model's size, in grey or RGB as
    the model's images are.

    Args:
        run: the folder of a run; its newest whole checkpoint is taken.
        file: an image, a folder of images, or a .npy, .npz or .csv file with an example in each row.
        count: how many examples.
        tries: completions of each.
        mask: what is filled: the lower half, the left half, the centre, or an image of the model's size, where white
            is filled and black is kept; or where a .npy is true. Of examples that are no images, the second half, the
            entries of a list, or where a .npy is true.
        sampling: length of the schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        seed: of all random numbers.
        raw: the weights themselves, not their averages over training.
        data: the run's own data, if they were moved; others are refused.
        recipe: the file of the run's own recipe.
        recipe_changed: accept a file that is not as it was when the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import inpaint
    from vages.app.runs.draws import complete
    from vages.app.runs.flows import complete_images

    how: dict[str, Any] = {"file": file, "count": count, "tries": tries, "mask": mask, "seed": seed}
    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded, bar() as progress:
        if loaded.recipe.annealed is None:
            loaded = _with_sampling(loaded, sampling)
            kept = (complete_images if loaded.recipe.flows else complete)(loaded, out, **how)
        else:
            kept = inpaint(loaded, out, **how, sampling=sampling, progress=progress)
    return _told(kept, json)


def embed(
    run: Run,
    file: Own = None,
    /,
    raw: bool = False,
    data: Data = None,
    recipe: RecipeFile = None,
    recipe_changed: bool = False,
    out: Annotated[Path | None, new("embedding")] = None,
    json: bool = False,
) -> int:
    """Write the posterior means of all examples, and say how well they tell the classes apart.

    OUT gets embedding.npz and result.json. The arrays are train, validation and test; where there are labels, those are
    train_labels and so on, a linear classifier is trained on the training examples, and it is tested on the test
    examples, on means and on pixels. (CIFAR10 and MNIST keep two CPU cores busy for a minute or two.) Of a file or
    folder, only the means of its examples are written, in an array called given; result.json has the examples' names in
    the same order. The middle of an image in a file (.png, .jpg, .bmp) is scaled to the model's size, in grey or RGB as
    the model's images are.

    Args:
        run: the folder of a run; its newest whole checkpoint is taken.
        file: an image, a folder of images, or a .npy, .npz or .csv file with an example in each row.
        raw: the weights themselves, not their averages over training.
        data: the run's own data, if they were moved; others are refused.
        recipe: the file of the run's own recipe.
        recipe_changed: accept a file that is not as it was when the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import embed

    with (
        opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded,
        bar(then="linear classifiers") as progress,
    ):
        kept = embed(loaded, out, file=file, progress=progress)
    if json or file is not None:
        return _told(kept, json)
    probe = kept.result.get("linear probe")
    if probe is None:
        say(f"{loaded.data_name} has no test examples with labels to compare with")
    else:
        for what in ("means", "pixels"):
            one = probe[what]
            told = "" if one["converged"] else ", not converged"
            say(f"linear probe on {what}: {one['accuracy']:.4f} ± {one['standard_error']:.4f}{told}")
        say(f"most frequent class: {probe['most frequent class']:.4f}")
        say(f"accuracies on {probe['tested on']} test examples, after training on {probe['trained on']} others")
    return _told(kept, json)


def _with_sampling(run: "Loaded", length: float | None) -> "Loaded":
    return replace(run, recipe=run.recipe.with_sampling(length))


def _refuse(run: "Loaded", **options: Any) -> None:
    """Raise for options of the paper's sampler, which this run does not use."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"{name}: expected nothing for {run.recipe.kind}, got {value}; it is for the paper's deep models"
            )


def _refuse_labels(run: "Loaded", **options: Any) -> None:
    """Raise for a label, which this run knows nothing of."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"{name}: expected nothing for {run.recipe.kind}, got {value}; it is for noise-conditional models"
            )


def _told(kept: "Kept", json: bool) -> int:
    """What is said of any results: how they were made, what went wrong, how long it took and where they are."""
    result = kept.result
    if json:
        print_json({"folder": kept.folder, **result})
        return 0
    say(f"{result['protocol']}; {result['weights']}, checkpoint of step {result['checkpoint']}")
    diagnosed = [name for name in ("R̂", "effective sample size") if result.get(name) is not None]
    if diagnosed:
        numbers = ", ".join(f"{name} {result[name]:.4g}" for name in diagnosed)
        say(f"{numbers}, {result['diverged moves']} moves diverged")
    for warned in result.get("warnings", []):
        say(f"warning: {warned}")
    if (diverged := result.get("diverged chains")) is not None:
        say(f"{diverged['count']} of {diverged['of']} chains diverged")
    say(f"{result['seconds']:.1f} s; results in {kept.folder}")
    return 0
