"""`vages reproduce`."""

from pathlib import Path
from typing import Annotated

import tyro

from vages.cli.options import Experiment, choice


def reproduce(
    name: Annotated[Experiment | None, tyro.conf.Positional, choice(Experiment)] = None,
    /,
    out: Path = Path("results"),
    quick: bool = False,
    seed: int = 0,
    list: bool = False,
) -> int:
    """Run an experiment of the paper, check its claims and draw its figure.

    Results go to OUT/NAME: result.json and the figures. Earlier results are moved aside, never overwritten. The exit
    status is 0 where the run is sound, whether or not every claim holds. Deep runs that several figures are drawn from
    are trained once, in OUT/runs/DATA-SEED; one that 'vages train' has put there, of whatever length, is taken.

    Args:
        name: the experiment, or all of them; without a GPU, all but those that need one.
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
            console.print(f"      {entry.takes}")
        return 0
    if name is None:
        raise ValueError(f"name: expected one of {', '.join(EXPERIMENTS)} or all, got nothing; try --list")
    from vages.environment import has_gpu
    from vages.experiments import reproduce

    sound = True
    for one in EXPERIMENTS if name == "all" else (name,):
        if name == "all" and EXPERIMENTS[one].needs_gpu and not quick and not has_gpu():
            console.print(f"{one}: left out, it needs a GPU; --quick runs a smaller version without one")
            continue
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
