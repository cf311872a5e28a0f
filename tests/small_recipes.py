"""Parts of presets, for tests that need no data; and the settings in a run's config.json."""

import json
from dataclasses import asdict

from vages.app.recipes import as_recipe, example_of, start
from vages.app.settings import DeepSettings, GRBMSettings


def parts_of(settings, shape):
    """Make a fresh model and posterior from a key, for examples of a shape."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    return lambda key: as_recipe(settings).make(key, example_of(shape))


def start_of(settings, shape):
    """The learner, and its state before the first iteration."""
    return start(as_recipe(settings), shape)


def first_config(settings):
    """The config.json of version 0.1."""
    kind = {GRBMSettings: "grbm", DeepSettings: "deep"}[type(settings)]
    return {"model": kind, **asdict(settings)}


def with_settings(config, **settings):
    """A config, of this version or 0.1, with other settings."""
    return config | ({"settings": config["settings"] | settings} if "format" in config else settings)


def edit_config(path, **settings):
    """Edit the settings in the config.json of a run."""
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(with_settings(config, **settings)))
