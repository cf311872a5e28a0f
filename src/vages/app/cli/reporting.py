"""`vages report`."""

import sys
from pathlib import Path
from typing import Annotated

from vages.app.cli.options import Run, given
from vages.app.output.console import print_json, say


def report(
    run: Run,
    /,
    out: Annotated[Path | None, given("FILE.html", "RUN/report.html")] = None,
    watch: bool = False,
    json: bool = False,
) -> int:
    """Write one HTML page about a run, or about an experiment's results.

    The page loads nothing from a network. It contains curves, pictures, claims, settings, environment, events and the
    command that reproduces the result. It also shows later results of the run (samples, interpolations, …). Damaged
    files are listed on the page.

    Args:
        run: a run folder, or the folder of an experiment's results.
        out: the page to write; an existing page is replaced.
        watch: rewrite the page whenever the run has progressed, until it ends; the page reloads by itself.
        json: print one JSON object; with --watch, one each time the page is written.
    """
    if watch:
        return _watch(run, out, json)
    from vages.app.runs.reports import write_report

    path = write_report(run, out)
    size = path.stat().st_size
    if json:
        print_json({"report": str(path), "bytes": size})
    else:
        say(f"{path} ({size / 1024:,.0f} KiB)")
    return 0


def _watch(run: Path, out: Path | None, json: bool) -> int:
    from vages.app.runs.report_watch import Seen, watch_report

    def tell(seen: Seen) -> None:
        if json:
            print_json(seen.record)
        else:
            say(seen.line)
        sys.stdout.flush()

    watch_report(run, tell, out)
    return 0
