"""`vages data`, which lists and downloads datasets, without JAX."""

from typing import TYPE_CHECKING, Annotated

from vages.app.cli.options import given
from vages.app.output.console import bar, print_json, waiting
from vages.terminal import printable

if TYPE_CHECKING:
    from vages.data import Dataset

_COLORS = {"built in": "green", "present": "green", "missing": "yellow", "damaged": "red"}


def data(get: Annotated[str | None, given("NAME", "none")] = None, json: bool = False) -> int:
    """List the datasets and whether they are on this computer, or download one.

    They are stored in the folder $VAGES_DATA, or in data in the current directory. Checksums are verified.

    Args:
        get: download missing or damaged files of mnist, cifar10 or freyface.
        json: print one JSON object.
    """
    from rich.console import Console

    from vages.data import datasets, fetch

    if get is not None:
        with bar(size=True) as progress:
            fetch(get, progress)
    with waiting("verifying checksums"):
        found = [row for row in datasets() if get in (None, row.name)]
    if json:
        print_json({"datasets": [row._asdict() for row in found]})
        return 0
    console = Console(highlight=False, soft_wrap=True)
    if get is not None:
        for row in found:
            console.print(printable(f"{row.name}: {row.state} in {row.where}"), markup=False)
        return 0
    console.print(_table(found))
    for row in found:
        if row.state == "damaged":
            console.print(printable(f"{row.name}: {row.detail}"), markup=False)
    console.print(
        "Download mnist, cifar10 or freyface with 'vages data --get NAME'; '--get celeba' prints instructions."
    )
    return 0


def _table(rows: "list[Dataset]"):
    from rich.markup import escape
    from rich.table import Table

    from vages.data import Splits

    table = Table(box=None, pad_edge=False)
    for title in ("name", "shape", "train", "validation", "test", "state"):
        table.add_column(title, no_wrap=True, justify="right" if title in Splits._fields else "left")
    table.add_column("where", overflow="fold")
    for row in rows:
        counts = ("",) * 3 if row.counts is None else (f"{count:,}" for count in row.counts)
        state = f"[{_COLORS[row.state]}]{row.state}[/]"
        where = "" if row.where is None else escape(printable(row.where))
        table.add_row(row.name, "×".join(map(str, row.shape)), *counts, state, where)
    return table
