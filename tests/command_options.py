"""The options of the command line."""

from dataclasses import fields
from typing import get_type_hints

from vages.app.cli.commands import COMMANDS
from vages.app.cli.training import OwnHow
from vages.app.settings import DeepSettings, GRBMSettings, ImageSettings


def options_of(name):
    """The options of a command and their types; for `train`, the settings of presets and the options of a run."""
    if name != "train":
        return {option: hint for option, hint in get_type_hints(COMMANDS[name].run).items() if option != "return"}
    found = {"start": str | None}
    for kind in (GRBMSettings, ImageSettings, DeepSettings, OwnHow):
        hints = get_type_hints(kind)
        found |= {field.name: hints[field.name] for field in fields(kind)}
    return found
