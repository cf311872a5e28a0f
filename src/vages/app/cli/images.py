"""`vages sample`, `vages interpolate`, `vages inpaint` and `vages embed`, which use a trained model."""

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
_DEEP = "the paper's deep models"
Mask = Annotated[str, tyro.conf.arg(metavar="half|left|center|0,3,5|FILE")]


def sample(
    run: Run,
    /,
    count: int = 100,
    latents: Literal["posterior", "joint"] = "posterior",
    sampling: Sampling = None,
    label: Annotated[str | int | None, given("NAME|INT", "all classes")] = None,
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

    Noise-conditional models of images are sampled by Heun's method, and the paper's deep models by annealed Langevin
    dynamics. Other models are sampled by `vages.sample`, with R̂ and effective sample size. OUT gets samples.png,
    samples.npz (v, h, and which chains diverged) and result.json, which records how they were drawn.

    Args:
        run: a run folder; its newest complete checkpoint is used.
        count: number of examples.
        latents: h: posterior means of random training images (as in the paper), or drawn jointly with the image.
        sampling: length of the sampling schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        label: the class to sample, by its folder's name or its number, for a run that was trained with --labels.
        guidance: strength of the label; above 1, samples are further from the other classes than the data are.
        seed: seed of all random numbers.
        raw: use the weights themselves, not their averages over training.
        data: path of the run's own data, if they were moved; other data are refused.
        recipe: the recipe file of the run.
        recipe_changed: accept a recipe file that has changed since the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import sample_images
    from vages.app.runs.draws import NOISE_CONDITIONAL, draw

    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded, bar() as progress:
        if loaded.recipe.annealed is None:
            loaded = _with_sampling(loaded, sampling)
            _refuse(loaded, _DEEP, latents=None if latents == "posterior" else latents)
            kept = draw(loaded, out, count=count, label=label, guidance=guidance, seed=seed)
        else:
            _refuse(loaded, NOISE_CONDITIONAL, label=label, guidance=guidance)
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

    For noise-conditional models of images, two images are mapped to noise, and images are drawn along a path between
    these. For any other model, h moves from the posterior mean of one example to that of another. For the paper's deep
    models, each row of the picture is a chain and each column a step. All chains have the same start and the same
    noise, and differ only in h. Without --between, h moves from RATIO m to -RATIO m, where m is the posterior mean of
    one image. OUT gets interpolation.png, interpolation.npz and result.json.

    An example is the index of a training example, from 0, or a file: an image, or a row of a .npy, .npz or .csv file,
    written FILE:ROW, from 0. Image files (.png, .jpg, .bmp) are center-cropped, scaled to the model's size and
    converted to its channels, gray or RGB.

    Args:
        run: a run folder; its newest complete checkpoint is used.
        image: for the paper's deep models, the image with the posterior mean m.
        between: the two examples.
        rows: number of points of the interpolation.
        columns: number of steps that are shown; the last is the image.
        ratio: RATIO, how far h moves.
        sampling: length of the sampling schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        seed: seed of all random numbers.
        raw: use the weights themselves, not their averages over training.
        data: path of the run's own data, if they were moved; other data are refused.
        recipe: the recipe file of the run.
        recipe_changed: accept a recipe file that has changed since the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import interpolate
    from vages.app.runs.draws import walk

    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded, bar() as progress:
        if loaded.recipe.annealed is None:
            loaded = _with_sampling(loaded, sampling)
            _refuse(loaded, _DEEP, image=image, columns=None if columns == 10 else columns, ratio=ratio)
            kept = walk(loaded, out, between=between, rows=rows, seed=seed)
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
    """Complete images, or other examples, that are partly hidden.

    The hidden entries and h are drawn given the visible entries only. The rows of the picture are the images, their
    visible parts, and the completions. Image files (.png, .jpg, .bmp) are center-cropped, scaled to the model's size
    and converted to its channels, gray or RGB. OUT gets inpainting.png, inpainting.npz and result.json.

    Args:
        run: a run folder; its newest complete checkpoint is used.
        file: an image, a folder of images, or a .npy, .npz or .csv file with an example in each row.
        count: number of examples.
        tries: number of completions of each example.
        mask: the part to fill: the lower half, the left half, the center, or the part that is white in an image of the
            model's size, or true in a .npy file. For examples that are not images: the second half, or the entries that
            are true in a .npy file. For any run but those of the paper's deep models: the listed entries.
        sampling: length of the sampling schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        seed: seed of all random numbers.
        raw: use the weights themselves, not their averages over training.
        data: path of the run's own data, if they were moved; other data are refused.
        recipe: the recipe file of the run.
        recipe_changed: accept a recipe file that has changed since the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import inpaint
    from vages.app.runs.draws import complete

    how: dict[str, Any] = {"file": file, "count": count, "tries": tries, "mask": mask, "seed": seed}
    with opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded, bar() as progress:
        if loaded.recipe.annealed is None:
            loaded = _with_sampling(loaded, sampling)
            kept = complete(loaded, out, **how)
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
    """Write the posterior means of all examples, and report how well they separate the classes.

    OUT gets embedding.npz and result.json. The arrays are train, validation and test. If there are labels, they are
    written as train_labels and so on. A linear classifier is then trained on the training examples and tested on the
    test examples, once on means (of a noise-conditional model: without the labels) and once on pixels. (CIFAR10 and
    MNIST take a minute or two on two CPU cores.) For a file or folder, only the means of its examples are written, in
    an array called given; result.json lists the names of the examples in the same order. Image files (.png, .jpg, .bmp)
    are center-cropped, scaled to the model's size and converted to its channels, gray or RGB.

    Args:
        run: a run folder; its newest complete checkpoint is used.
        file: an image, a folder of images, or a .npy, .npz or .csv file with an example in each row.
        raw: use the weights themselves, not their averages over training.
        data: path of the run's own data, if they were moved; other data are refused.
        recipe: the recipe file of the run.
        recipe_changed: accept a recipe file that has changed since the run was started.
        out: the folder for results; it must be new or empty.
        json: print one JSON object.
    """
    from vages.app.runs import embed
    from vages.app.runs.own_examples import needs_context

    with (
        opened(run, recipe, recipe_changed, raw=raw, data=data) as loaded,
        bar(then="linear classifiers") as progress,
    ):
        kept = embed(loaded, out, file=file, progress=progress)
    if json or file is not None:
        return _told(kept, json)
    probe = kept.result.get("linear probe")
    if probe is None:
        without = f"{loaded.read.name} has no test examples with labels"
        why = "the means depend on the context of the data" if needs_context(loaded) else without
        say(f"no linear probe: {why}")
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


def _refuse(run: "Loaded", owner: str, **options: Any) -> None:
    """Raise ValueError for options that this run does not support; `owner` names the models that do."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}: expected nothing for {run.recipe.kind}, got {value}; it is for {owner}")


def _told(kept: "Kept", json: bool) -> int:
    """Print how results were made, what went wrong, how long it took and where they are."""
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
