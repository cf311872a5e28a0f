"""The command line. JAX is imported only by a command that computes."""

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

Experiment = Literal["fig1", "all"]
Bench = Literal["estimators"]


def reproduce(
    name: Annotated[Experiment | None, tyro.conf.Positional] = None,
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
        quick: a smaller version, with claims stated for its size.
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
        with console.status(f"{one}: {EXPERIMENTS[one].shows}"):
            result = reproduce(one, out, quick=quick, seed=seed)
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


def bench(name: Annotated[Bench, tyro.conf.Positional], /, json: bool = False, rounds: int = 50) -> int:
    """Measure speed on this machine, alternatives side by side.

    Args:
        name: what to measure.
        json: print one JSON object.
        rounds: turns of which the median is taken.
    """
    from vages.bench import BENCHES
    from vages.environment import environment

    result = importlib.import_module(BENCHES[name]).run(rounds)
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
            {"reproduce": reproduce, "bench": bench},
            prog="vages",
            description="Energy-based latent variable models: learn, sample and evaluate.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except (ValueError, OSError) as error:
        print(f"vages: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
