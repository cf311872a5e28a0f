"""`vages reproduce`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vages.app.cli.exit_status import Status
from vages.app.cli.options import Experiment, Folder, choice
from vages.app.output.console import print_json, say, waiting
from vages.terminal import printable

if TYPE_CHECKING:
    from vages.app.experiments.reproduce import Reproduction


def reproduce(
    name: Annotated[Experiment | None, tyro.conf.Positional, choice(Experiment)] = None,
    /,
    out: Folder = Path("results"),
    quick: bool = False,
    seed: int = 0,
    strict: bool = False,
    list: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> int:
    """Run an experiment of the paper, check its claims and draw its figure.

    result.json and the figures are written to OUT/NAME. Earlier results are moved aside, never overwritten. The exit
    status is 0 if the run is sound, whether or not every claim holds. Deep runs that are shared by several figures are
    trained once, in OUT/runs/DATA-SEED. A run of any length that 'vages train' wrote there is used.

    Args:
        name: the experiment, or all of them; without a GPU, all except those that need one.
        out: the folder for results.
        quick: run a smaller version, whose claims are about runs of that size.
        seed: seed of all random numbers.
        strict: exit with 1 if a claim does not hold.
        list: print what each experiment shows and how long it takes, and run nothing.
        dry_run: print what would be done, with which settings and data, and write nothing.
        json: print one JSON object.
    """
    from vages.app.experiments.catalogue import EXPERIMENTS
    from vages.bounds import Bounds, check_bounds

    if list:
        return _listed(json)
    if name is None:
        raise ValueError(f"name: expected one of {', '.join(EXPERIMENTS)} or all, got nothing; try --list")
    from vages.environment import has_gpu

    check_bounds(seed=(seed, Bounds(0, 2**32 - 2**10)))  # some seeds after it are used too
    names = [
        one
        for one in (EXPERIMENTS if name == "all" else (name,))
        if name != "all" or quick or not EXPERIMENTS[one].needs_gpu or has_gpu()
    ]
    left_out = [one for one in EXPERIMENTS if name == "all" and one not in names]
    if not json:
        for one in left_out:
            say(f"{one}: skipped, as it needs a GPU; --quick runs a smaller version without one")
    if dry_run:
        return _planned(names, out, quick, seed, left_out, json)
    results = [_reproduced(one, out, quick, seed, json) for one in names]
    if json:
        print_json({"experiments": [record for record, _ in results], "left out": left_out})
    return max(
        Status.FAILED if not result.sound or (strict and not all(claim.holds for claim in result.outcome.claims)) else 0
        for _, result in results
    )


def _reproduced(name: str, out: Path, quick: bool, seed: int, json: bool) -> "tuple[dict[str, Any], Reproduction]":
    """Run one experiment and print its result."""
    from rich.console import Console
    from rich.markup import escape

    from vages.app.experiments import EXPERIMENTS, reproduce

    console = Console(highlight=False, soft_wrap=True, stderr=json)  # with --json, standard output is JSON only
    with waiting(f"{name}: {EXPERIMENTS[name].shows}") as note:
        result = reproduce(name, out, quick=quick, seed=seed, say=note)
    if result.moved is not None:
        console.print(printable(f"{name}: earlier results are now in {result.moved}"), markup=False)
    for claim in result.outcome.claims if not json else ():
        verdict = "[green]holds[/]" if claim.holds else "[red]does not hold[/]"
        console.print(f"{name}: {verdict}  {escape(claim.claim)}: {claim.value:.4g}, bound {claim.bound:g}")
    if not json:
        console.print(printable(f"{name}: {60 * result.minutes:.0f} s, in {result.folder}"), markup=False)
    if not result.sound:
        console.print(f"{name}: [red]the result is invalid: a claim's value is not a finite number[/]")
    about = {"experiment": name, "quick": quick, "seed": seed, "sound": result.sound, "minutes": result.minutes}
    where = {"folder": result.folder, "earlier results": result.moved}
    return {**about, **where, "claims": result.outcome.record()["claims"]}, result


def _listed(json: bool) -> int:
    from dataclasses import asdict

    from rich.console import Console

    from vages.app.experiments.catalogue import EXPERIMENTS

    if json:
        print_json({"experiments": [{"experiment": name, **asdict(entry)} for name, entry in EXPERIMENTS.items()]})
        return 0
    console = Console(highlight=False, soft_wrap=True)
    for name, entry in EXPERIMENTS.items():
        console.print(f"[bold]{name}[/]  {entry.shows}")
        console.print(f"      {entry.takes}")
    return 0


def _planned(names: Iterable[str], out: Path, quick: bool, seed: int, left_out: list[str], json: bool) -> int:
    from vages.app.cli.planning import plan_experiment, print_plan

    plans = [plan_experiment(name, out, quick=quick, seed=seed) for name in names]
    if json:
        print_json({"experiments": plans, "left out": left_out})
    else:
        for plan in plans:
            print_plan(plan)
    return 0
