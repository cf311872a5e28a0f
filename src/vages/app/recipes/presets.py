"""The presets as recipes, and the recipe of any settings of theirs."""

from dataclasses import asdict, fields
from typing import Any

from vages.app.recipes import deep, grbm
from vages.app.recipes.recipe import Recipe
from vages.app.settings import DEEP_PRESETS, PRESETS, DeepSettings, GRBMSettings

Settings = GRBMSettings | DeepSettings
ALL = PRESETS | DEEP_PRESETS


def as_recipe(settings: Settings) -> Recipe:
    """The recipe of a GRBM, or of a deep model."""
    return {GRBMSettings: grbm.recipe, DeepSettings: deep.recipe}[type(settings)](settings)


def preset(name: str) -> Recipe:
    """The preset of a name."""
    return as_recipe(ALL[name])


def nearest_preset(settings: Settings) -> tuple[str, dict[str, Any]]:
    """The preset that the fewest settings differ from, and these settings."""
    mine = asdict(settings)
    near = {name: one for name, one in ALL.items() if type(one) is type(settings)}
    changes = {
        name: {field.name: mine[field.name] for field in fields(one) if getattr(one, field.name) != mine[field.name]}
        for name, one in near.items()
    }
    name = min(changes, key=lambda name: len(changes[name]))
    return name, changes[name]
