"""The settings in a run folder: config.json, its checks, and reopening a folder to resume.

    {"format": 2, "recipe": "cifar10", "settings": {…}}                                      a preset
    {"format": 2, "recipe": "my_energy.py:recipe", "sha256": "…", "settings": {…}}           a custom recipe

A folder holds no code: the run of a custom recipe is opened with the recipe as an argument.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vages.app.recipes.presets import Settings, as_recipe, nearest_preset
from vages.app.recipes.recipe import Recipe
from vages.app.recipes.units import Units
from vages.app.settings import ALL, DeepSettings, GRBMSettings, Training
from vages.storage.directory import Directory
from vages.training import RunFolder
from vages.training.checkpoint import last_step, newest_about
from vages.training.digests import canonical, settings_digest

FORMAT = 2
OWN = "own"  # the name of a recipe that does not come from a file
_FIRST = {"grbm": GRBMSettings, "deep": DeepSettings}  # names in the first format


def config_of(recipe: Recipe) -> dict[str, Any]:
    """Return the contents of config.json."""
    if recipe.parts is not None:
        name, about = nearest_preset(recipe.settings)[0], {}
    else:
        name = OWN if recipe.origin is None else recipe.origin.name
        about = {} if recipe.origin is None else {"sha256": recipe.origin.sha256}
    units = {} if recipe.units is None else {"units": recipe.units.plain()}
    return {"format": FORMAT, "recipe": name, **about, "settings": asdict(recipe.settings), **units}


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings in a config.json of the current or the first format."""
    found = config.get("settings") if "format" in config else config
    return found if isinstance(found, dict) else {}


def recipe_of(path: Path, own: Recipe | None = None, *, changed: bool = False) -> Recipe:
    """Return the recipe of a run's folder; raise ValueError if config.json was edited since the newest checkpoint.

    The run of a custom recipe needs `own`, the recipe from the same file; with `changed`, the file may differ.
    """
    config = RunFolder.peek(path)
    recipe = recipe_in(config, str(path / "config.json"), own, changed=changed)
    if (about := newest_about(Directory(path) / "checkpoints")) is not None:
        _check_unedited(path, config, recipe.free, about)
    return recipe


def check_unedited(path: Path, config: dict[str, Any], about: dict[str, Any]) -> None:
    """Raise ValueError if config.json differs from the checkpoint, as far as can be checked without the recipe."""
    own = is_own(config)
    free = frozenset({"steps"}) if own else recipe_in(config, str(path / "config.json")).free
    _check_unedited(path, config, free, about)


def is_own(config: dict[str, Any]) -> bool:
    """Whether a config is that of a custom recipe."""
    name = config.get("recipe")
    return "format" in config and isinstance(name, str) and name not in ALL


def kind_in(config: dict[str, Any]) -> str | None:
    """Return the kind of a run's model in words; None if the config is invalid."""
    try:
        return Training.kind if is_own(config) else recipe_in(config).kind
    except (ValueError, TypeError):
        return None


def recipe_in(
    config: dict[str, Any], name: str = "config.json", own: Recipe | None = None, *, changed: bool = False
) -> Recipe:
    """Return the recipe of a config; `name` is its name in error messages."""
    settings = dict(settings_of(config))
    strange = ValueError(f"{name}: expected the settings of a recipe, got others; is it a run of vages?")
    if "format" in config and config["format"] != FORMAT:
        raise ValueError(f"{name}: expected format {FORMAT}, got {config['format']!r:.20}; use the newest vages")
    if is_own(config):
        start: Any = _checked_own(config, name, own, changed=changed)
    else:
        kind = _kind(config)
        settings.pop("model", None)
        if kind is None:
            raise strange
        if own is not None:
            raise ValueError(f"recipe: expected none, as {name} is of a preset, got one; leave it out")
        start = as_recipe(kind())
    known = asdict(start.settings)
    if not settings or not set(settings) <= set(known):  # a setting may be newer than a run
        raise strange
    try:
        units = Units.parse(config["units"], name) if "units" in config else None
        return replace(start.with_(**settings), units=units)
    except TypeError as error:
        raise ValueError(
            f"{name}: expected the settings of a recipe, got values of other types; is it a run of vages?"
        ) from error
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from None


def _checked_own(config: dict[str, Any], name: str, own: Recipe | None, *, changed: bool) -> Recipe:
    """Return the given recipe; raise ValueError if it is not the run's."""
    said, digest = str(config.get("recipe"))[:200], config.get("sha256")
    file, _, wanted = said.rpartition(":")
    if own is None:
        raise ValueError(
            f"recipe: expected that of the run, {said}, got none; give it with --recipe {file}; to train, run "
            f"'vages train {file} --resume RUN'"
        )
    if own.parts is not None:
        raise ValueError(f"recipe: expected that of the run, {said}, got {own.kind}; give the recipe it was trained by")
    if own.origin is None or digest is None:  # in Python, recipes have no file
        return own
    other = own.origin.path.name != file and own.origin.sha256 != digest and not changed
    if own.origin.name.rpartition(":")[2] != wanted or other:
        raise ValueError(f"recipe: expected that of the run, {said}, got {own.origin.name}; choose it")
    if own.origin.sha256 != digest and not changed:
        raise ValueError(
            f"recipe: expected {file} as it was when the run was started, got one that has changed since (SHA-256 "
            f"{own.origin.sha256:.12} in place of {digest!s:.12}); undo the change, or accept it with --recipe-changed"
        )
    return own


def _check_unedited(path: Path, config: dict[str, Any], free: frozenset[str], about: dict[str, Any]) -> None:
    """Raise ValueError unless config.json has the settings of the checkpoint, or those that a later resume logged."""
    if settings_digest(config) == about.get("settings_sha256"):
        return
    kept = about.get("config")
    if not isinstance(kept, dict):  # not written by a vages run; loading the arrays raises the error
        return
    now, before = ({**_named(one), **_whole(one)} for one in (config, kept))
    changed = [name for name in before | now if canonical(before.get(name)) != canonical(now.get(name))]
    announced = _announced(path) if changed else {}
    free |= {"sha256"}  # of a changed recipe file that a resume has accepted
    if not is_own(config) and _can_be_longer(path, recipe_in(config), recipe_in(kept)):
        free |= {"steps"}
    edited = [name for name in changed if name not in free or announced.get(name) != canonical(now.get(name))]
    if edited:
        told = ", ".join(f"{name} {now.get(name)} in place of {before.get(name)}" for name in edited)
        raise ValueError(
            f"{path / 'config.json'}: expected the settings of the checkpoint, got {told:.500}; undo the edit, and "
            "give allowed changes as options"
        )


def _can_be_longer(path: Path, *recipes: Recipe) -> bool:
    """Whether the iterations so far are the same under all of these recipes, which differ in `steps`."""
    return last_step(Directory(path) / "checkpoints") < min(recipe.same_until for recipe in recipes)


def _whole(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, including those that are newer than the run."""
    if is_own(config):
        return settings_of(config)
    return asdict(recipe_in(config).settings)


def _named(config: dict[str, Any]) -> dict[str, Any]:
    """Return the name and hash of a custom recipe; for a preset only its kind, as its name does not matter."""
    if is_own(config):
        return {name: config.get(name) for name in ("recipe", "sha256")}
    return {"recipe": str(_kind(config))}


def _kind(config: dict[str, Any]) -> type[Settings] | None:
    """Return the class of the settings in a preset's config."""
    if "format" not in config:
        return _FIRST.get(str(config.get("model")))
    if "sigma_base" in settings_of(config):  # a deep model of the paper, whose preset once had a shorter name
        return DeepSettings
    name = config.get("recipe")
    return type(ALL[name]) if isinstance(name, str) else None


def _announced(path: Path) -> dict[str, str]:
    """Return the settings that resumes have logged in events.jsonl: a process may end before the next checkpoint."""
    announced = {}
    for event in RunFolder.events(path):
        if event.get("event") == "other settings":
            for name, pair in event.items():
                if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], int | float | str):
                    announced[name] = canonical(pair[1])
    return announced


def check_resumable(recipe: Recipe, path: Path) -> list[str]:
    """Raise ValueError unless the run can be resumed with the recipe; return the settings that change.

    Nothing is written.
    """
    earlier = recipe_of(path, None if recipe.parts is not None else recipe, changed=True)
    before, now = asdict(earlier.settings), asdict(recipe.settings)
    free = earlier.free & recipe.free
    if _can_be_longer(path, earlier, recipe):
        free |= {"steps"}
    changed = [name for name in before | now if before.get(name) != now.get(name)]
    if refused := [name for name in changed if name not in free]:
        told = ", ".join(f"{name} ({before.get(name)} before, {now.get(name)} now)" for name in refused)
        decays = getattr(earlier.settings, "decay", "constant") != "constant"
        reason = (
            "the learning rate's decay is planned over all iterations" if decays else "training depends on their number"
        )
        begun = f" and began at iteration {earlier.same_until:.0f}" if decays and earlier.same_until > 0 else ""
        why = f", where {reason}{begun}" if "steps" in refused and "steps" not in earlier.free else ""
        raise ValueError(
            f"resume: expected the settings that {path} was started with, got another {told}{why}; start a "
            "new run, with --from to begin with its model"
        )
    done = last_step(Directory(path) / "checkpoints")
    if recipe.settings.steps < done:
        raise ValueError(f"steps: expected at least the {done} already made, got {recipe.settings.steps}; ask for more")
    return changed


def reopened(recipe: Recipe, path: Path, dataset: dict[str, Any] | None = None) -> RunFolder:
    """Open the folder of a run to resume it with this recipe, and update its config.

    `dataset` is the record of the data for the run's next checkpoints.
    """
    changed = check_resumable(recipe, path)
    folder = RunFolder.reopen(path)
    folder.dataset = dataset
    now = config_of(recipe)
    other = "sha256" in now and now["sha256"] != folder.config.get("sha256")
    if other:
        folder.tell("other settings", sha256=[folder.config.get("sha256"), now["sha256"]])
    if changed or other:
        begun = {name: folder.config[name] for name in ("from",) if name in folder.config}
        folder.configure(now | begun)
    return folder
