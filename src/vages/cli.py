"""The command line. JAX is imported only by a command that computes."""

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

# The choices stand here so that --help needs no JAX; a test compares them with what there is.
Experiment = Literal["fig1", "fig2", "fig4", "checkerboard-methods", "control-variate", "all"]
Bench = Literal["estimators", "grbm"]
Preset = Literal["checkerboard", "freyface"]
Method = Literal["vages-dsm", "dsm", "bidsm", "vages-ksd", "ksd", "is-ksd", "cd", "pcd", "nce", "vnce"]


def _given(metavar: str, default: str = "the preset's"):
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def _choice(options: object):
    return tyro.conf.arg(metavar="{" + ",".join(get_args(options)) + "}", help_behavior_hint="")


Whole = Annotated[int | None, _given("INT")]
Real = Annotated[float | None, _given("FLOAT")]
Rounds = Annotated[int | None, _given("INT", "enough to be steady")]


def train(
    preset: Annotated[Preset, tyro.conf.Positional] = "checkerboard",
    /,
    method: Annotated[Method | None, _given("{" + ",".join(get_args(Method)) + "}")] = None,
    data: Annotated[str | None, _given("NAME|FILE")] = None,
    out: Annotated[Path | None, _given("DIR", "the first free runs/PRESET-METHOD-NUMBER")] = None,
    steps: Whole = None,
    seeds: Whole = None,
    seed: Whole = None,
    latents: Whole = None,
    samples: Annotated[int | None, _given("INT", "the paper's for the method")] = None,
    posterior_steps: Whole = None,
    unrolled: Whole = None,
    chain_steps: Whole = None,
    sigma: Real = None,
    bandwidth: Real = None,
    learning_rate: Real = None,
    batch: Whole = None,
    control_variate: bool = False,
) -> int:
    """Train a Gaussian restricted Boltzmann machine; print its test log-likelihood and draw what it learnt.

    Without arguments: the paper's checkerboard by VaGES-DSM. What is not given is the preset's. The run's folder holds
    config.json, environment.json, metrics.jsonl, result.json and the pictures. Ctrl-C ends training early and keeps
    what was learnt.

    Args:
        preset: settings of the paper to start from.
        method: how to learn.
        data: checkerboard, two_moons, rings, eight_gaussians, pinwheel, swiss_roll, freyface, or a .npy or .npz file.
        out: the run's folder; it must be new or empty.
        steps: iterations.
        seeds: how many runs, with seeds SEED, SEED + 1, ..., in one program.
        seed: of data, initial parameters and all noise.
        latents: binary latent units.
        samples: L, samples of the posterior for each of VaES and VaGES.
        posterior_steps: K, steps of the posterior on each batch.
        unrolled: N, unrolled posterior steps of bidsm.
        chain_steps: k, Gibbs steps of cd and pcd.
        sigma: noise level of the DSM methods.
        bandwidth: kernel bandwidth of the KSD methods.
        learning_rate: of Adam, for model and posterior.
        batch: examples an iteration.
        control_variate: subtract the control variate from VaES.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from dataclasses import replace

    from vages.models.grbm import MAX_ENUMERATED
    from vages.recipes import PRESETS, run_recipe
    from vages.training import numbered_folder

    recipe = replace(PRESETS[preset], **{name: value for name, value in given.items() if name not in ("preset", "out")})
    source = Path(data).stem if data else preset
    folder = numbered_folder(Path("runs"), f"{source}-{recipe.method}") if out is None else out
    trained = run_recipe(recipe, folder, progress=True)
    likelihood, fitted = trained.test_log_likelihood, trained.fitted
    if fitted.interrupted:
        print(f"vages: stopped by Ctrl-C after {fitted.step} of {recipe.steps} iterations")
    kind = "exact" if recipe.latents <= MAX_ENUMERATED else "AIS"
    spread = (
        f" ± {likelihood.std(ddof=1):.4f} (standard deviation of {len(likelihood)} seeds)" if recipe.seeds > 1 else ""
    )
    print(f"test log-likelihood ({kind}): {likelihood.mean():.4f}{spread}")
    print(f"{fitted.step} iterations in {fitted.seconds:.1f} s; results and pictures in {folder}")
    return 130 if fitted.interrupted else 0


def reproduce(
    name: Annotated[Experiment | None, tyro.conf.Positional, _choice(Experiment)] = None,
    /,
    out: Path = Path("results"),
    quick: bool = False,
    seed: int = 0,
    list: bool = False,
) -> int:
    """Run an experiment of the paper, check its claims and draw its figure.

    Results go to OUT/NAME: result.json and the figures. Earlier results are moved aside, never overwritten. The exit
    status is 0 where the run is sound, whether or not every claim holds.

    Args:
        name: the experiment, or all of them.
        out: the folder for results.
        quick: a smaller version of the same, whose claims are about runs of that size.
        seed: of all random numbers.
        list: say what each experiment shows and how long it takes, and run nothing.
    """
    from rich.console import Console

    from vages.experiments.catalogue import EXPERIMENTS

    console = Console(highlight=False, soft_wrap=True)
    if list:
        for key, entry in EXPERIMENTS.items():
            console.print(f"[bold]{key}[/]  {entry.shows}")
            console.print(f"      {entry.minutes:g} min on two CPU cores, {entry.quick_minutes:g} with --quick")
        return 0
    if name is None:
        raise ValueError(f"name: expected one of {', '.join(EXPERIMENTS)} or all, got nothing; try --list")
    from vages.experiments import reproduce

    sound = True
    for one in EXPERIMENTS if name == "all" else (name,):
        with console.status(f"{one}: {EXPERIMENTS[one].shows}") as status:
            result = reproduce(one, out, quick=quick, seed=seed, say=status.console.out)
        if result.moved is not None:
            console.print(f"{one}: earlier results are now in {result.moved}", markup=False)
        for claim in result.outcome.claims:
            verdict = "[green]holds[/]" if claim.holds else "[red]does not hold[/]"
            console.print(f"{one}: {verdict}  {claim.claim}: {claim.value:.4g}, bound {claim.bound:g}")
        console.print(f"{one}: {60 * result.minutes:.0f} s, in {result.folder}", markup=False)
        if not result.sound:
            console.print(f"{one}: [red]the run is not sound: a claim's value is not a finite number[/]")
        sound = sound and result.sound
    return 0 if sound else 1


def bench(name: Annotated[Bench, tyro.conf.Positional], /, json: bool = False, rounds: Rounds = None) -> int:
    """Measure speed on this machine, alternatives side by side.

    Args:
        name: what to measure.
        json: print one JSON object.
        rounds: turns, of which the median is taken.
    """
    from vages.bench import BENCHES
    from vages.environment import environment

    module = importlib.import_module(BENCHES[name])
    result = module.run() if rounds is None else module.run(rounds)
    if json:
        print(_json({"bench": name, **result, "environment": environment()}))
    else:
        for key, value in result.items():
            print(f"{key}: {_json(value)}")
    return 0


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Run `vages …`; errors are one line."""
    try:
        status = tyro.extras.subcommand_cli_from_dict(
            {"train": train, "reproduce": reproduce, "bench": bench},
            prog="vages",
            description="Energy-based latent variable models: learn, sample and evaluate.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OSError) as error:
        print(f"vages: {error}", file=sys.stderr)
        status = 2
    except ArithmeticError as error:
        from vages.training import Diverged

        if not isinstance(error, Diverged):
            raise
        print(f"vages: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
