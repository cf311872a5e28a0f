"""`vages train`, whose options are the settings of the recipe and the fields of `How`."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vages.app.cli.devices import make_mesh, parse_cluster
from vages.app.cli.exit_status import Status
from vages.app.cli.options import Policy, given
from vages.app.cli.supervision import membership
from vages.app.cli.trained import saying_what_is_saved, tell_trained
from vages.app.output.console import print_json
from vages.app.settings import ALL, PointSettings

if TYPE_CHECKING:
    from vages.app.recipes import Recipe
    from vages.app.runs import Run

START = "board"
_NAMES = tuple(ALL)
_Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Start = Annotated[
    str | None,
    tyro.conf.Positional,
    tyro.conf.arg(
        help="a preset, or a file with a recipe",
        metavar="{" + ",".join(_NAMES) + "}|FILE.py[:NAME]",
        help_behavior_hint=f"(default: {START})",
    ),
]


@dataclass(frozen=True)
class How:
    """How to run."""

    out: Annotated[Path | None, given("DIR", "the first free runs/NAME-NUMBER")] = None  # run folder, new or empty
    resume: Annotated[Path | None, given("RUN", "none, a new run")] = None  # run folder to resume
    # run whose model and posterior to start from, to train them further on other data or with other settings
    from_: Annotated[Path | None, tyro.conf.arg(name="from", metavar="RUN", help_behavior_hint="(default: none)")] = (
        None
    )
    # iterations between checkpoints
    checkpoint_every: Annotated[int | None, given("INT", "by time, at most once a minute; the run's with --resume")] = (
        None
    )
    # number of newest checkpoints to keep
    keep_last: Annotated[int | None, given("INT", "2; the run's with --resume")] = None
    # also keep checkpoints at multiples of this step
    keep_every: Annotated[int | None, given("INT", "none; the run's with --resume")] = None
    guard: Policy = "stop"  # if training diverges: stop, or go back to a good checkpoint and lower the learning rates
    devices: int = 1  # number of devices that share each batch; 0: all
    # train in several processes, each started with its own INDEX; auto asks the cluster's scheduler
    cluster: Annotated[str | None, given("auto|HOST:PORT,PROCESSES,INDEX", "this process alone")] = None
    # seconds in which every process must join, and after which a process that does not answer counts as lost
    cluster_timeout: int = 60
    tensorboard: _Flag = False  # also write the metrics for TensorBoard
    # print what would be done, whether the data are present, and parameters and bytes; write nothing
    dry_run: _Flag = False
    json: _Flag = False  # print one JSON object


@dataclass(frozen=True)
class OwnHow(How):
    """How to run."""

    # path of the data file, if not that in the recipe
    data: Annotated[str | None, given("FILE", "the recipe's")] = None
    recipe_changed: _Flag = False  # resume with a recipe file that has changed since the run was started


def train(start: str | None = None, /, **options: Any) -> int:
    """Train a model, and draw pictures of the result.

    The first argument is a preset or a file with a recipe of your own. checkerboard and freyface are Gaussian
    restricted Boltzmann machines, evaluated by their test log-likelihood. cifar10, mnist, celeba and digits are
    noise-conditional models of images; images is the same for a folder of your own (--data FOLDER). board is a model of
    points, whose log p(v) takes one forward pass. cifar10-paper and so on are the paper's deep models. The settings
    below are those of the preset or recipe, with their defaults. The run folder holds config.json, environment.json,
    metrics.jsonl, events.jsonl, checkpoints, result.json and the pictures. Ctrl-C, SIGTERM and SIGHUP end training
    early with a checkpoint. A run that was stopped or killed can be resumed with --resume RUN, with bit-identical
    results. It keeps its settings, but --steps may be increased before its learning rate begins to decay. If its data
    were moved, --data gives their new path.
    """
    known = {field.name for field in fields(OwnHow)}
    resume = options.get("resume")
    start = start or _preset_for(options.get("data")) if resume is None else start
    first = _recipe(start, resume, changed=bool(options.get("recipe_changed")))
    own = first.parts is None
    how = (OwnHow if own else How)(
        **{name: value for name, value in options.items() if name in known and (own or name != "data")}
    )
    settings = {name: value for name, value in options.items() if name not in known or (name == "data" and not own)}
    from vages.app.recipes.finding import blamed

    with blamed(first):
        return _train(start, first, settings, how)


def parse_train(words: list[str], **texts: Any) -> tuple[tuple[str | None], dict[str, Any]]:
    """Parse the arguments of `train`, whose options depend on the preset, the recipe file or the resumed run."""
    start, resume, changed = _first_word(words), _value(words, "--resume"), "--recipe-changed" in words
    start = start or _preset_for(_value(words, "--data")) if resume is None else start
    first: Any = ALL.get(start or START)
    own = start is not None and start not in _NAMES
    _check_out(resume, _value(words, "--out"))
    if own or resume is not None:  # which needs JAX
        found = _recipe(start, None if resume is None else Path(resume), changed=changed)
        first = found.settings
        if found.origin is not None:
            texts["description"] = _about(found.origin.about, str(start))
        own = own or type(first) not in (type(one) for one in ALL.values())
    how = OwnHow if own else How
    _check_kind(words, first, how)
    if taken := {one.name for one in fields(first)} & {one.name for one in fields(how)}:
        raise ValueError(f"settings: expected names that are not those of options, got {sorted(taken)[0]}; rename it")

    kinds = {"start": (Start, None), "settings": (type(first), first), "how": (how, how())}
    shape = [(name, kind, field(default_factory=lambda value=value: value)) for name, (kind, value) in kinds.items()]
    call: Any = tyro.cli(make_dataclass("Train", shape), args=words, config=(tyro.conf.OmitArgPrefixes,), **texts)
    given, chosen, run = call.start, call.settings, call.how
    changed_settings = {
        one.name: getattr(chosen, one.name)
        for one in fields(chosen)
        if getattr(chosen, one.name) != getattr(first, one.name)
    }
    return (given,), {**changed_settings, **{one.name: getattr(run, one.name) for one in fields(run)}}


def _about(about: str, file: str) -> str:
    """Return the text of --help for a recipe file."""
    told = (
        f"Train the recipe in {file}. Its settings are the options below, with its defaults. A run that was stopped or "
        "killed continues with --resume RUN, bit for bit."
    )
    return "\n\n".join([*([about] if about else []), told, f"Example: vages train {file} --steps 5000"])


def _check_out(resume: Any, out: Any) -> None:
    """Raise ValueError if --out is given with --resume."""
    if resume is not None and out is not None:
        raise ValueError(f"out: expected none with --resume, which continues in {resume}, got {out}; leave it out")


def _check_kind(words: list[str], first: Any, how: type[How]) -> None:
    """Raise ValueError for a setting of another kind of preset."""
    presets = {type(one) for one in ALL.values()}
    settings = {one.name for kind in presets for one in fields(kind)}
    own = {one.name for kind in (type(first), how) for one in fields(kind)}
    for word in words:
        name = word.removeprefix("--").removeprefix("no-").partition("=")[0].replace("-", "_")
        if word.startswith("--") and name in settings - own:
            raise ValueError(f"{name}: {_another_kind(name, first.kind)}")


def _another_kind(name: str, kind: str) -> str:
    """Return the error for a setting that the recipe does not have."""
    if name == "normalized" and kind == PointSettings.kind:
        return f"expected no such setting, as {kind} is always normalized, got one; leave it out"
    having = ", ".join(preset for preset, one in ALL.items() if hasattr(one, name))
    choose = f", or choose a preset that has it: {having}" if having else ""
    return f"expected no such setting, as {kind} has none, got one; leave it out{choose}"


def _first_word(words: list[str]) -> str | None:
    """Return the preset or file: the first word that is neither an option nor the value of one."""
    flags = {"--help", "-h", *(f"--{field.name.replace('_', '-')}" for field in fields(OwnHow) if field.type is _Flag)}
    before = ""
    for word in words:
        option = before.startswith("--") and "=" not in before and before not in flags
        if not word.startswith("-") and (not option or before.startswith("--no-") or before in _booleans()):
            return word
        before = word
    return None


def _preset_for(data: str | None) -> str | None:
    """Return the preset for --data without a preset: that of a dataset, `images` for images, or None."""
    if data is None or data in _NAMES:
        return data
    from vages.data.own_images import holds_images

    return "images" if holds_images(Path(data)) else None


def _booleans() -> set[str]:
    """The options of presets that take no value."""
    kinds = {type(one) for one in ALL.values()}
    return {f"--{one.name.replace('_', '-')}" for kind in kinds for one in fields(kind) if one.type is bool}


def _value(words: list[str], option: str) -> str | None:
    """Return the value of an option, or None if it is not given."""
    for word, after in pairwise([*words, ""]):
        if word == option and after:
            return after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _recipe(start: str | None, resume: Path | None, *, changed: bool) -> "Recipe":
    """Return the preset, the recipe in a file, or the recipe of the resumed run."""
    from vages.app.recipes import preset
    from vages.app.recipes.finding import find_recipe, is_recipe_file
    from vages.app.runs import recipe_of

    own = None
    if start is not None and start not in _NAMES:
        if not is_recipe_file(start):
            from difflib import get_close_matches

            near = get_close_matches(start, _NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else "see vages train --help"
            raise ValueError(f"expected one of {', '.join(_NAMES)}, or a file FILE.py, got {start!r}; {hint}")
        own = find_recipe(start)
    if resume is None:
        return preset(start or START) if own is None else own
    if start is not None and own is None:
        raise ValueError(f"preset: expected none with --resume, whose settings are used, got {start}; leave it out")
    return recipe_of(resume, own, changed=changed)


def _train(start: str | None, first: "Recipe", settings: dict[str, Any], run: How) -> int:
    from vages.bounds import ITERATIONS, SECONDS, check_bounds
    from vages.training import Guard

    out, resume = run.out, run.resume
    _check_out(resume, out)
    if resume is not None and run.from_ is not None:
        raise ValueError(f"from: expected none with --resume, got {run.from_}; leave it out")
    moved = run.data if isinstance(run, OwnHow) else settings.pop("data", None) if resume is not None else None
    recipe = _with(first, settings)
    if resume is None and moved is not None:
        recipe = recipe.at(moved)
    where = None if resume is None else moved
    name = _name(start, recipe, settings.get("data"))
    check_bounds(cluster_timeout=(run.cluster_timeout, SECONDS))
    policy = {one: getattr(run, one) for one in ("checkpoint_every", "keep_last", "keep_every")}
    policy = {option: number for option, number in policy.items() if number is not None}
    check_bounds(**{option: (number, ITERATIONS) for option, number in policy.items()})
    batch, timeout = recipe.settings.batch, run.cluster_timeout
    if run.dry_run:
        check = lambda: _check_start(run.devices, run.cluster, timeout, batch, run.tensorboard)
        plan = {"resume": resume is not None, "where": where, "check": check}
        plan["begin"] = lambda: _begin(run.from_, recipe)
        return _planned(recipe, resume or out or _next(name), plan, run.json)
    how: dict[str, Any] = {
        "begin": _begin(run.from_, recipe),
        "checkpoints": _checkpoints(policy, resume),
        "guard": Guard(run.guard),
        "mesh": make_mesh(run.devices, run.cluster, timeout),
        "resume": resume is not None,
        "where": where,
        "progress": True,
    }
    together = nullcontext() if run.cluster is None else membership(timeout)
    with together, _run_folder(resume or out, name) as folder:
        logged = _tensorboard(folder) if run.tensorboard else nullcontext()
        with saying_what_is_saved(folder, recipe), logged as log:
            if log is not None:
                how["callbacks"] = [log]
            return _trained(recipe, folder, how, run.json)


def _begin(path: Path | None, recipe: "Recipe") -> "Run | None":
    """Load the run to start from, if any."""
    if path is None:
        return None
    from vages.app.runs import load_run

    try:
        return load_run(path, recipe if recipe.parts is None else None, changed=True)
    except ValueError as error:
        told = str(error)
        if not told.startswith("run: "):
            raise
        raise ValueError(f"from: {told.removeprefix('run: ')}") from error  # as the option is called here


def _checkpoints(options: dict[str, int], resume: Path | None) -> Any:
    """Return the policy of checkpoints by the options that were given, or None: the usual one, or the resumed run's.

    Options that were not given are those of the resumed run.
    """
    from dataclasses import replace

    from vages.training.policy import Checkpoints, read_policies

    if not options:
        return None
    before = None if resume is None else read_policies(resume).latest
    given = {"every" if option == "checkpoint_every" else option: number for option, number in options.items()}
    return replace(before or Checkpoints(), **given)


def _name(start: str | None, recipe: "Recipe", data: str | None) -> str:
    """Return the name of a new run folder, without its number."""
    if recipe.origin is not None:
        file, _, name = recipe.origin.name.partition(":")
        return Path(file).stem if name == "recipe" else f"{Path(file).stem}-{name}"
    name, method = Path(data).stem if data else start or START, getattr(recipe.settings, "method", None)
    return name if method is None else f"{name}-{method}"


@contextmanager
def _run_folder(given: Path | None, name: str) -> Iterator[Path]:
    """Yield the given folder, or a new runs/NAME-NUMBER, which the first process of a cluster creates."""
    from vages.training import is_writer, numbered_folder

    if given is not None or not is_writer():
        yield Path("runs") / name if given is None else given
        return
    with numbered_folder(Path("runs"), name) as folder:
        yield folder


def _next(name: str) -> Path:
    """Return the folder that a new run would get."""
    from itertools import count
    from os.path import lexists

    paths = (Path("runs") / f"{name}-{number}" for number in count(1))
    return next(path for path in paths if not lexists(path))


def _with(recipe: "Recipe", settings: dict[str, Any]) -> "Recipe":
    """Return the recipe with other settings. Raise ValueError for a setting that it does not have."""
    from typing import get_args

    known = {field.name for field in fields(recipe.settings)}
    if unknown := [name for name in settings if name not in known]:
        raise ValueError(f"{unknown[0]}: {_another_kind(unknown[0], recipe.kind)}")
    methods = get_args(type(recipe.settings).__annotations__.get("method"))
    if methods and "method" in settings and settings["method"] not in methods:
        raise ValueError(f"method: expected one of {', '.join(methods)}, got {settings['method']}; choose one")
    return recipe.with_(**settings)


def _trained(recipe: "Recipe", folder: Path, how: dict[str, Any], json: bool) -> int:
    from vages.app.runs import run_recipe

    trained = run_recipe(recipe, folder, **how)
    return tell_trained(trained.fitted, recipe, folder, json, trained.summary)


def _check_start(devices: int, cluster: str | None, timeout: int, batch: int, tensorboard: bool) -> int:
    """Return the number of devices that share a batch. Raise the errors that the start of training would raise.

    No cluster is joined. If the number of its processes is not known, that is the largest possible number.
    """
    import jax

    from vages.training import check_batch

    if cluster is not None:
        _, processes, _ = parse_cluster(cluster, timeout)
        count = batch if processes is None else processes * jax.local_device_count()
    else:
        check_batch(batch, mesh := make_mesh(devices, None))
        count = 1 if mesh is None else mesh.size
    if tensorboard:
        _check_tensorboard()
    return count


def _planned(recipe: Any, folder: Path, how: dict[str, Any], json: bool) -> int:
    from vages.app.cli.planning import plan_training, print_plan

    plan = plan_training(recipe, folder, **how)
    print_json(plan) if json else print_plan(plan)
    return Status.DONE if plan["problem"] is None else Status.REFUSED


def _check_tensorboard() -> None:
    """Raise ValueError unless tensorboardX is installed."""
    from importlib.util import find_spec

    if find_spec("tensorboardX") is None:
        raise ValueError(
            "tensorboard: expected tensorboardX to be installed, got none; pip install 'vages[tensorboard]'"
        )


def _tensorboard(folder: Path) -> Any:
    """Return a log for TensorBoard."""
    _check_tensorboard()
    from vages.app.output.tensorboard import EventLog
    from vages.storage.directory import Directory

    return EventLog(Directory(folder) / "tensorboard")
