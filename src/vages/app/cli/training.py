"""`vages train`."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from signal import Signals
from typing import Annotated, Any

import tyro

from vages.app.cli.exit_status import Status
from vages.app.cli.options import AnyMethod, Policy, Preset, Real, Whole, choices, given
from vages.app.cli.supervision import membership
from vages.app.output.console import print_json, say
from vages.app.settings import Decay, Gap, Network, Precision, Spacing

# options that say how to run, and are no part of a recipe
_HOW = (
    "preset",
    "out",
    "resume",
    "checkpoint_every",
    "keep_last",
    "keep_every",
    "guard",
    "devices",
    "cluster",
    "cluster_timeout",
    "tensorboard",
    "dry_run",
    "json",
)


def train(
    preset: Annotated[Preset | None, tyro.conf.Positional, given(choices(Preset), "checkerboard")] = None,
    /,
    method: Annotated[AnyMethod | None, given(choices(AnyMethod))] = None,
    data: Annotated[str | None, given("NAME|FILE|FOLDER")] = None,
    out: Annotated[Path | None, given("DIR", "the first free runs/PRESET-METHOD-NUMBER")] = None,
    resume: Annotated[Path | None, given("RUN", "none, a new run")] = None,
    steps: Whole = None,
    batch: Whole = None,
    seed: Whole = None,
    seeds: Whole = None,
    latents: Whole = None,
    network: Annotated[Network | None, given(choices(Network))] = None,
    width: Whole = None,
    depth: Whole = None,
    head_width: Whole = None,
    samples: Annotated[int | None, given("INT", "the paper's for the method")] = None,
    posterior_steps: Whole = None,
    divergence: Annotated[Gap | None, given(choices(Gap))] = None,
    corrector_steps: Whole = None,
    corrector_size: Real = None,
    corrector_noise: Real = None,
    unrolled: Whole = None,
    chain_steps: Whole = None,
    sigma: Real = None,
    sigma_base: Real = None,
    sigma_begin: Real = None,
    sigma_end: Real = None,
    spacing: Annotated[Spacing | None, given(choices(Spacing))] = None,
    bandwidth: Real = None,
    control_variate: bool = False,
    flips: bool = False,
    learning_rate: Real = None,
    posterior_learning_rate: Real = None,
    final_learning_rate: Real = None,
    decay: Annotated[Decay | None, given(choices(Decay))] = None,
    warmup: Whole = None,
    clip: Real = None,
    ema: Real = None,
    precision: Annotated[Precision | None, given(choices(Precision))] = None,
    sampling: Real = None,
    fid_every: Whole = None,
    checkpoint_every: Annotated[int | None, given("INT", "by the clock, once a minute or less")] = None,
    keep_last: int = 2,
    keep_every: Annotated[int | None, given("INT", "none")] = None,
    guard: Policy = "stop",
    devices: int = 1,
    cluster: Annotated[str | None, given("auto|HOST:PORT,PROCESSES,INDEX", "this process alone")] = None,
    cluster_timeout: int = 60,
    tensorboard: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> int:
    """Train a model, and draw what it learnt.

    Without arguments: the paper's checkerboard by VaGES-DSM. checkerboard and freyface are Gaussian restricted
    Boltzmann machines, of which the test log-likelihood is printed; mnist, cifar10, celeba and digits are deep models
    of images. What is not given is the preset's. The run's folder holds config.json, environment.json, metrics.jsonl,
    events.jsonl, checkpoints, result.json and the pictures. Ctrl-C, SIGTERM and SIGHUP end training early with a
    checkpoint. A run that was stopped or killed, or is to be longer, continues with --resume RUN, bit for bit.

    Args:
        preset: settings of the paper to start from.
        method: how to learn; the last three are for deep models.
        data: checkerboard, two_moons, rings, eight_gaussians, pinwheel, swiss_roll, freyface, or a .npy or .npz file;
            for deep models mnist, cifar10, celeba, digits, or a folder, archive or file of images. With --resume, where
            the run's own data are now, if they were moved; others are refused.
        out: the run's folder; it must be new or empty.
        resume: a run's folder, to go on with; settings are the run's own, and --steps may be more.
        steps: iterations.
        batch: examples an iteration.
        seed: of data, initial parameters and all noise.
        seeds: how many runs, with seeds SEED, SEED + 1, ..., in one program (GRBMs).
        latents: latent units.
        network: of a deep model; mlp is quicker on a CPU.
        width: channels of the first convolution, or units of a layer.
        depth: blocks at each resolution, or layers.
        head_width: units of the layer above the latents.
        samples: L, samples of the posterior for each of VaES and VaGES.
        posterior_steps: K, steps of the posterior on each batch.
        divergence: what the posterior of a deep model lessens.
        corrector_steps: C, Langevin steps on samples of the posterior (deep models).
        corrector_size: step size of the corrector.
        corrector_noise: standard deviation of the corrector's noise.
        unrolled: N, unrolled posterior steps of bidsm and bimdsm.
        chain_steps: k, Gibbs steps of cd and pcd.
        sigma: noise level of the DSM methods.
        sigma_base: noise level of the target of the MDSM methods.
        sigma_begin: the first noise level of the MDSM methods.
        sigma_end: the last noise level of the MDSM methods.
        spacing: of the noise levels between them.
        bandwidth: kernel bandwidth of the KSD methods.
        control_variate: subtract the control variate from VaES.
        flips: train on each image's mirror image too.
        learning_rate: of Adam, for model and posterior.
        posterior_learning_rate: of Adam, for the posterior, if another (deep models).
        final_learning_rate: where the cosine ends (deep models; 0 for GRBMs).
        decay: of the learning rate over the run.
        warmup: iterations over which the learning rate rises to its value.
        clip: the largest norm of a gradient; longer ones are shortened.
        ema: decay of the averages of model and posterior, which are evaluated and sampled in their place.
        precision: what a deep model's networks compute in.
        sampling: length of the sampler's schedule; 1 is the paper's 2,700 steps.
        fid_every: iterations between two looks at the FID of 1,000 samples, of which the best decides what is kept.
        checkpoint_every: iterations from one checkpoint to the next.
        keep_last: how many of the newest checkpoints stay.
        keep_every: checkpoints of steps that this number divides stay as well.
        guard: what to do when training diverges: stop, or go back to the last good checkpoint and go on more slowly.
        devices: how many devices share each batch; 0 is all of them.
        cluster: train in several processes, each started with its own INDEX; auto asks the cluster's scheduler.
        cluster_timeout: seconds within which every process must join, and after which one that does not answer is
            given up.
        tensorboard: write the numbers for TensorBoard as well, to tensorboard in the run's folder.
        dry_run: say what would be done, whether the data are there, parameters and bytes, and write nothing; the exit
            status is 2 where training could not start.
        json: print one JSON object.
    """
    settings = _given(locals())
    if resume is not None and out is not None:
        raise ValueError(f"out: expected nothing beside --resume, which goes on in {resume}, got {out}; leave it out")
    if resume is not None and preset is not None:
        raise ValueError(f"preset: expected none beside --resume, whose settings are the run's, got {preset}; drop it")
    from vages.app.recipes import DEEP_PRESETS, PRESETS, DeepSettings
    from vages.app.runs import recipe_of
    from vages.bounds import ITERATIONS, SECONDS, check_bounds
    from vages.training import Checkpoints, Guard

    preset = preset or "checkerboard"
    start = recipe_of(resume) if resume is not None else {**PRESETS, **DEEP_PRESETS}[preset]
    where = None if resume is None else settings.pop("data", None)
    recipe = _with(start, settings)
    name = f"{Path(data).stem if data else preset}-{recipe.method}"
    check_bounds(cluster_timeout=(cluster_timeout, SECONDS))
    rhythm = {"checkpoint_every": checkpoint_every, "keep_last": keep_last, "keep_every": keep_every}
    check_bounds(**{option: (number, ITERATIONS) for option, number in rhythm.items() if number is not None})
    checkpoints = Checkpoints(checkpoint_every, keep_last=keep_last, keep_every=keep_every)
    if dry_run:
        check = lambda: _check_start(devices, cluster, cluster_timeout, recipe.batch, tensorboard)
        plan = {"resume": resume is not None, "where": where, "check": check}
        return _planned(recipe, resume or out or _next(name), plan, json)
    how: dict[str, Any] = {
        "checkpoints": checkpoints,
        "guard": Guard(guard),
        "mesh": make_mesh(devices, cluster, cluster_timeout),
        "resume": resume is not None,
        "where": where,
        "progress": True,
    }
    together = nullcontext() if cluster is None else membership(cluster_timeout)
    with together, _run_folder(resume or out, name) as folder:
        with _saying_what_is_saved(folder, recipe.steps), _tensorboard(folder) if tensorboard else nullcontext() as log:
            if log is not None:
                how["callbacks"] = [log]
            return (_deep if isinstance(recipe, DeepSettings) else _grbm)(recipe, folder, how, json)


@contextmanager
def _run_folder(given: Path | None, name: str) -> Iterator[Path]:
    """The folder that was given, or a new runs/NAME-NUMBER, which the first process of a cluster makes."""
    from vages.training import is_writer, numbered_folder

    if given is not None or not is_writer():
        yield Path("runs") / name if given is None else given
        return
    with numbered_folder(Path("runs"), name) as folder:
        yield folder


def _next(name: str) -> Path:
    """The folder that a run would have if it were started now."""
    from itertools import count
    from os.path import lexists

    paths = (Path("runs") / f"{name}-{number}" for number in count(1))
    return next(path for path in paths if not lexists(path))


@contextmanager
def _saying_what_is_saved(folder: Path, steps: int) -> Iterator[None]:
    """A signal that ends the command says how far the run is saved, and how to go on with it."""
    from vages.app.runs.saved import saved_progress
    from vages.training import is_writer
    from vages.training.folder import is_run

    try:
        yield
    except KeyboardInterrupt as stop:
        if is_writer() and is_run(folder):
            step, told = saved_progress(folder, steps)
            does = "draws its pictures" if step == steps else "goes on"
            stop.args = (told, f"vages train --resume {shlex.quote(str(folder))} {does}")
        raise


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given; 0 is one, a flag that is not up is none."""
    return {name: x for name, x in options.items() if name not in _HOW and x is not None and x is not False}


def _with(recipe: Any, settings: dict[str, Any]) -> Any:
    """The recipe with other settings; one that it does not have is refused."""
    from dataclasses import fields, replace
    from typing import get_args

    known = {field.name for field in fields(recipe)}
    if unknown := [name for name in settings if name not in known]:
        kind = "a deep model" if "network" in known else "a GRBM"
        raise ValueError(
            f"{unknown[0]}: expected a setting of {kind}, got one of another kind of model; leave it out or choose "
            "another preset"
        )
    methods = get_args(type(recipe).__annotations__["method"])
    if "method" in settings and settings["method"] not in methods:
        raise ValueError(f"method: expected one of {', '.join(methods)}, got {settings['method']}; choose one")
    return replace(recipe, **settings)


def _grbm(recipe: Any, folder: Path, how: dict[str, Any], json: bool) -> int:
    from vages.app.runs import run_recipe
    from vages.models.grbm import MAX_ENUMERATED

    trained = run_recipe(recipe, folder, **how)
    likelihood, kind = trained.test_log_likelihood, "exact" if recipe.latents <= MAX_ENUMERATED else "AIS"
    seeds = (
        f" ± {likelihood.std(ddof=1):.4f} (standard deviation of {len(likelihood)} seeds)" if recipe.seeds > 1 else ""
    )
    return _told(trained.fitted, recipe, folder, json, f"test log-likelihood ({kind}): {likelihood.mean():.4f}{seeds}")


def _deep(recipe: Any, folder: Path, how: dict[str, Any], json: bool) -> int:
    from vages.app.runs import run_deep

    fitted = run_deep(recipe, folder, **how).fitted
    return _told(
        fitted, recipe, folder, json, f"loss: {fitted.history[-1]['loss']:.5g}" if fitted.history else "no log"
    )


def _told(fitted: Any, recipe: Any, folder: Path, json: bool, line: str) -> int:
    from vages.training import is_writer
    from vages.training.folder import read_object

    status = Status(128 + Signals[fitted.signal]) if fitted.interrupted else Status.DONE
    if not is_writer():
        return status
    if json:
        print_json({"folder": folder, **read_object(folder, "result.json")})
        return status
    if fitted.interrupted:
        from vages.app.runs.saved import saved_progress

        by = "Ctrl-C" if status is Status.STOPPED else fitted.signal
        told = saved_progress(folder, recipe.steps)[1]
        say(f"vages: stopped by {by}; {told}; vages train --resume {shlex.quote(str(folder))} goes on")
    say(line)
    say(f"{fitted.step} iterations in {fitted.seconds:.1f} s; results and pictures in {folder}")
    return status


def _check_start(devices: int, cluster: str | None, timeout: int, batch: int, tensorboard: bool) -> None:
    """Raise what the start would raise of these options; no cluster is joined."""
    from vages.training import check_batch

    if cluster is not None:
        parse_cluster(cluster, timeout)
    else:
        check_batch(batch, make_mesh(devices, None))
    if tensorboard:
        _check_tensorboard()


def _planned(recipe: Any, folder: Path, how: dict[str, Any], json: bool) -> int:
    from vages.app.cli.planning import plan_training, print_plan

    plan = plan_training(recipe, folder, **how)
    print_json(plan) if json else print_plan(plan)
    return Status.DONE if plan["problem"] is None else Status.REFUSED


def _check_tensorboard() -> None:
    """Raise unless the library that writes the log is installed."""
    from importlib.util import find_spec

    if find_spec("tensorboardX") is None:
        raise ValueError(
            "tensorboard: expected tensorboardX to be installed, got none; pip install 'vages[tensorboard]'"
        )


def _tensorboard(folder: Path) -> Any:
    """A log for TensorBoard."""
    _check_tensorboard()
    from vages.app.output.tensorboard import EventLog
    from vages.storage.directory import Directory

    return EventLog(Directory(folder) / "tensorboard")


def parse_cluster(cluster: str, timeout: int) -> tuple[str | None, int | None, int | None]:
    """The address, the number of processes and the index of this one; None where the scheduler is to say it."""
    from vages.bounds import PROCESSES, SECONDS, check_bounds

    check_bounds(cluster_timeout=(timeout, SECONDS))
    if cluster == "auto":
        return None, None, None
    address, *numbers = cluster.split(",")
    host, _, port = address.rpartition(":")
    if not host or not _is_port(port) or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise ValueError(
            f"cluster: expected auto or HOST:PORT,PROCESSES,INDEX, got {cluster!r}; write 10.0.0.1:4000,2,0, say"
        )
    processes, index = (int(number[:9]) for number in numbers)
    check_bounds(cluster=(processes, PROCESSES))
    if index >= processes:
        raise ValueError(
            f"cluster: expected an INDEX from 0 to PROCESSES - 1, got {index} of {processes}; the first has 0"
        )
    return address, processes, index


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text[:6]) < 2**16


def make_mesh(devices: int, cluster: str | None, timeout: int = 60) -> Any:
    """The devices that share a batch, after joining a cluster; None is the first device alone."""
    import jax

    from vages.training import data_mesh, join_cluster

    if cluster is not None:
        join_cluster(*parse_cluster(cluster, timeout), timeout)
        return data_mesh()
    have = jax.device_count()
    if not 0 <= devices <= have:
        raise ValueError(f"devices: expected 0 (all) to {have}, got {devices}; this computer has no more")
    return data_mesh(jax.devices()[: devices or have]) if devices != 1 else None
