"""The presets as recipes, and recipes for any of their settings."""

from dataclasses import asdict, fields
from typing import Any

from vages.app.recipes import deep, grbm, images, points
from vages.app.recipes.recipe import Recipe
from vages.app.settings import ALL, DeepSettings, GRBMSettings, ImageSettings, PointSettings

Settings = GRBMSettings | DeepSettings | ImageSettings | PointSettings


def as_recipe(settings: Settings) -> Recipe:
    """Return the recipe of a GRBM, a noise-conditional model of images or points, or one of the paper's deep models."""
    makers: dict[type, Any] = {
        GRBMSettings: grbm.recipe,
        DeepSettings: deep.recipe,
        ImageSettings: images.recipe,
        PointSettings: points.recipe,
    }
    return makers[type(settings)](settings)


def preset(name: str) -> Recipe:
    """Return the preset with this name."""
    return as_recipe(ALL[name])


def nearest_preset(settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the name of the preset with the fewest different settings, and these settings.

    Presets for the same data take precedence, then `images`.
    """
    mine = asdict(settings)
    near = {name: one for name, one in ALL.items() if type(one) is type(settings)}
    changes = {
        name: {field.name: mine[field.name] for field in fields(one) if getattr(one, field.name) != mine[field.name]}
        for name, one in near.items()
    }
    other = lambda name: (near[name].data != settings.data) * (1 if name == "images" else 2)
    name = min(changes, key=lambda name: (other(name), len(changes[name])))
    return name, changes[name]
