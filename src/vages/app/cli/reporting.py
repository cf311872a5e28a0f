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
    """Make one HTML page of a run, or of an experiment's results.

    The page needs no network: curves, pictures, claims, settings, environment, events and the command that makes the
    same again are inside. What was made of the run since (samples, interpolations, …) is on it too. Damaged files are
    named on the page.

    Args:
        run: the folder of a run, or of an experiment's results.
        out: where the page goes; an earlier page there is replaced.
        watch: write the page again whenever the run has moved on, until it ends; the page reloads by itself.
        json: print one JSON object; with --watch, one for each time the page is written.
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
