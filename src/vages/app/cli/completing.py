"""`vages completion`: shell completion of commands, options and their values."""

import contextlib
import io
from dataclasses import field, fields, make_dataclass
from importlib.util import find_spec
from typing import Annotated, Literal, get_type_hints

import tyro

from vages.app.cli.options import Shell, choice
from vages.app.cli.training import OwnHow, Start
from vages.app.settings import DeepMethod, DeepSettings, GRBMSettings, ImageSettings, Method


def completion(shell: Annotated[Shell, tyro.conf.Positional, choice(Shell)], /) -> int:
    """Print a script that completes commands, options and values in a shell.

    bash: put it in ~/.local/share/bash-completion/completions/vages. zsh: in a file _vages in a folder of $fpath.
    fish: in ~/.config/fish/completions/vages.fish. tcsh: in a file that ~/.tcshrc sources.

    Args:
        shell: the shell to write the script for.
    """
    from vages.app.cli.commands import COMMANDS

    if shell == "tcsh" and find_spec("shtab") is None:
        raise ValueError("shell: expected shtab, which completion in tcsh needs, got none; pip install shtab")
    # the script covers all commands, which tyro is given only here
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            {name: _any_training() if name == "train" else command.run for name, command in COMMANDS.items()},
            prog="vages",
            args=["--tyro-print-completion", shell],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    if "vages" not in written.getvalue():
        raise RuntimeError(f"no completion for {shell} was made")
    print(written.getvalue(), end="")
    return 0


def _any_training() -> type:
    """Return a class with the options of `vages train` for all presets, since a shell does not know which is used."""
    found = {}
    for kind in (GRBMSettings, ImageSettings, DeepSettings, OwnHow):
        hints = get_type_hints(kind, include_extras=True)
        found |= {one.name: (hints[one.name], field(default=one.default)) for one in fields(kind)}
    found["method"] = (Literal[Method, DeepMethod], field(default=GRBMSettings.method))
    shape = [("start", Start, field(default=None)), *((name, *how) for name, how in found.items())]
    return make_dataclass("Train", shape)
