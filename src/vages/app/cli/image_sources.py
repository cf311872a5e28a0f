"""The images that `vages evaluate` compares, checked before anything is computed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vages.app.cli.opening import Own

if TYPE_CHECKING:
    from vages.app.runs import Run
    from vages.app.runs.quality import Quality
    from vages.evaluation import Statistics


def why_unjudged(source: str, measure: str, gray: str, own: Own = Own()) -> str | None:  # noqa: B008
    """Return why no images are evaluated, or None if they are."""
    if not is_run(source) or measure == "images":
        return None
    if measure in ("model", "ood"):
        return f"--measure {measure} does not evaluate images"
    from vages.app.runs import load_run, recipe_of
    from vages.evaluation import inception_file

    recipe = recipe_of(Path(source), own.recipe, changed=own.changed)
    if not recipe.draws_images:
        return f"the network cannot evaluate samples of {recipe.kind}"
    if not inception_file().exists():
        return "the network's weights are not installed, see vages inception --help"
    if load_run(Path(source)).model.v.shape[0] == 1 and gray == "refuse":
        return "the images are gray (--gray replicate repeats their channel three times)"
    return None


def judge_of(
    source: str, against: str | None, how: dict[str, Any], run: "Run | None"
) -> "Callable[[Any], tuple[Quality | None, Statistics]]":
    """Return a function of a progress callback that evaluates the images. Errors in them are raised here, before that.

    `run` is the source, if that is a run. Images without a reference have statistics, but no quality.
    """
    from dataclasses import replace

    from vages.app.recipes import open_images
    from vages.app.recipes.reference import check_count
    from vages.app.recipes.sources import ImageSet, pieces
    from vages.app.runs import evaluate_images, evaluate_run, image_statistics, load_run
    from vages.app.runs.image_quality import count_of, sample_moments, samples_of
    from vages.evaluation import images_digest, load_inception, load_statistics

    texts = [source] if against is None else [source, against]
    own = {} if run is None else {source: run}
    runs = own | {text: load_run(Path(text), raw=how["raw"]) for text in texts if is_run(text) and text not in own}
    drawn: dict[str, Any] = {name: how[name] for name in ("count", "protocol", "sampling", "gray")}
    drawn["count"] = 10_000 if how["count"] is None else how["count"]
    for one in runs.values():
        samples_of(one, seed=how["seed"], **drawn)
    network = load_inception()
    others: dict[str, ImageSet | Statistics] = {}
    for text in texts:
        if text in runs:
            continue
        if text.endswith(".safetensors"):
            others[text] = load_statistics(Path(text), network.sha256)
        else:
            others[text] = images = open_images(text, how["gray"])
            check_count(images.count, images.name)
            if runs:  # without runs, they are read first anyway
                images_digest(pieces(images))
    if source in others:
        count_of(others[source], how["count"])
        if against is None and not isinstance(others[source], ImageSet):
            raise ValueError(
                f"source: expected images, got {source}, their saved statistics; use these, or add --against"
            )

    def judge(progress: Any) -> "tuple[Quality | None, Statistics]":
        common = {"seed": how["seed"], "network": network, "progress": progress}
        reference = None if against is None else others.get(against)
        if against in runs:
            seed = (how["seed"] + 1) % 2**32  # other samples, if a run is compared with itself
            moments, told = sample_moments(runs[against], network, seed=seed, progress=progress, **drawn)
            name = f"samples of {against}, {told.protocol}, seed {told.seed}"
            reference = replace(moments.statistics(), name=name)
        if source in runs:
            return evaluate_run(runs[source], reference, **drawn, **common)
        images = others[source]
        if reference is not None:
            return evaluate_images(images, reference, count=how["count"], gray=how["gray"], **common)
        assert isinstance(images, ImageSet)
        return None, image_statistics(images, count=how["count"], **common)

    return judge


def is_run(text: str) -> bool:
    """Whether `text` is the path of a run folder."""
    from vages.storage.directory import Directory

    return Directory(Path(text)).has_file("config.json")
