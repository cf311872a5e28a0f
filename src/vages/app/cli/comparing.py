"""`vages compare`: runs side by side."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from vages.app.cli.options import given
from vages.app.output.console import print_json, print_table, say

Runs = Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="")]


def compare(
    runs: Runs, /, out: Annotated[Path | None, given("FILE.html", "no page")] = None, json: bool = False
) -> int:
    """Compare runs: the settings that differ, the results and, on a page, the curves.

    Args:
        runs: two or more run folders; runs may be unfinished.
        out: also write a page with curves; an existing page is replaced.
        json: print one JSON object.
    """
    from vages.app.runs.comparison import compare, write_comparison

    compared = compare(list(runs))
    written = None if out is None else write_comparison(compared, out)
    if json:
        print_json({**compared.record(), **({} if written is None else {"page": written})})
        return 0
    for title, rows in (("settings that differ", compared.settings), ("results", compared.results)):
        if rows:
            print_table([(title, *compared.names), *((name, *map(_told, values)) for name, values in rows)])
        else:
            say(f"{title}: none")
    if written is not None:
        say(f"page: {written}")
    return 0


def _told(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
