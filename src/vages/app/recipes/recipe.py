"""The `Recipe`: a model, its data and its training. Presets and the recipes in users' files are its values."""

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from vages.app.recipes.examples import Examples, as_examples, is_stream, of_stream, placed
from vages.app.recipes.units import Units
from vages.app.settings import ImageSettings, Training
from vages.checks import check_kind
from vages.data import Splits
from vages.models import EBLVM
from vages.objectives import Objective
from vages.posteriors import Posterior
from vages.samplers import Annealed, Heun
from vages.training import Learner

Numbers = Mapping[str, Any]
Look = Callable[[PRNGKeyArray, Any, Any, Any, Examples], Numbers]


_LOOK = ("key", "settings", "model", "posterior", "data")
_ARGUMENTS = {"build": ("key", "settings", "data"), "evaluate": _LOOK, "test": _LOOK, "pictures": ("trained",)}


class Origin(NamedTuple):
    """Origin of a user's recipe: FILE.py:NAME, the SHA-256 of the file, its path, and its description."""

    name: str
    sha256: str
    path: Path
    about: str = ""  # the first paragraph of its docstring


class Parts(NamedTuple):
    """Properties of a family of presets that a user's recipe does not have."""

    of: Callable[[Any], "Recipe"]  # the recipe with these settings
    rank: int  # number of axes of an example
    load: Callable[[Any, bool], Examples]  # loads the data of settings; whether to check them against the network
    named: tuple[str, ...]  # names of data that need no path
    same_until: float  # number of iterations that do not depend on how many are planned; inf: all
    activations: Callable[[tuple[int, ...]], int]  # bytes of activations in an iteration, for examples of a shape
    draw: Callable[[Any, bool], Any]  # draws pictures of a trained run; whether to show progress
    summary: Callable[[Any], str]  # describes a run in one line
    sketch: Callable[[PRNGKeyArray, "Recipe", Any, Any, Examples], bytes | None] | None = None  # a PNG during training
    check: Callable[[], object] = lambda: None  # raises if something that training needs is missing
    copies: int = 1  # copies of the data in memory: one per seed, or two with mirrored images
    stacked: bool = False  # whether a single seed has an axis of seeds too, which evaluations see
    chunk: int | None = None
    evaluate_every: int | None = None  # iterations, if there is no such setting
    free: frozenset[str] = frozenset()  # settings that a resumed run may change
    settle: Callable[[Examples], Any] | None = None  # completes settings by values from the data


@dataclass(frozen=True, eq=False)
class Recipe:
    """A model, its data and its training, for `vages train` and the commands on its runs.

    `data`, `learner`, `sampler` and `noise` are values, or functions of the settings that return them.

    **Arguments**

    - `data`: An array, a dict with "v" and the context, `Splits`, or a .npy, .npz or .csv file. A single array is
        split into 80 % for training, 10 % for validation and 10 % for test. A function of the settings may return
        these, or a stream: a function of the step, or an iterator (see `fit`).
    - `build`: `build(key, settings, data)` returns a model and a posterior. `data.splits.train` holds the training
        examples.
    - `learner`: A `Learner`.
    - `settings`: `Training`, or a dataclass derived from it. Its fields are plain values, and become options of
        `vages train`.
    - `sampler`: The sampler of `vages sample`. With None, `vages.sample` chooses it.
    - `evaluate`: `evaluate(key, settings, model, posterior, data)` returns a dict of numbers, which are logged every
        `settings.evaluate_every` iterations.
    - `maximize`, `minimize`: The name of one of these numbers. The weights with the best value are kept.
    - `test`: A function like `evaluate` that is called at the end of training. Its numbers go into result.json.
    - `pictures`: `pictures(trained)` returns Matplotlib figures by name. With None, the loss is drawn.
    - `noise`: The standard deviation of the noise on the data whose density the model learns, for `vages evaluate`.
    """

    data: Any
    build: Callable[[PRNGKeyArray, Any, Examples], tuple[EBLVM, Posterior]]
    learner: Learner | Callable[[Any], Learner]
    settings: Any = field(default_factory=Training)
    sampler: Any = None
    evaluate: Look | None = None
    maximize: str | None = None
    minimize: str | None = None
    test: Look | None = None
    pictures: Callable[[Any], dict[str, Any]] | None = None
    noise: float | Callable[[Any], float] = 0.0
    parts: Parts | None = field(default=None, repr=False)
    origin: Origin | None = field(default=None, repr=False)
    units: Units | None = field(default=None, repr=False)  # of a run's training data, if standardized

    def __post_init__(self) -> None:
        if self.parts is None:
            check_kind(
                "settings", self.settings, Training, "Training, or a dataclass derived from it", "write Training()"
            )
            hints = vars(type(self.settings)).get("__annotations__", {})
            own = {name for name, hint in hints.items() if "ClassVar" not in str(hint)}
            if own - {one.name for one in fields(self.settings)}:
                raise TypeError("settings: expected a dataclass, got a class; write @dataclass(frozen=True) above it")
        for name, arguments in _ARGUMENTS.items():
            value = getattr(self, name)
            if not callable(value) and not (value is None and name != "build"):
                raise TypeError(f"{name}: expected a function, got {type(value).__name__}; see vages.Recipe")
            if value is not None and not _takes(value, len(arguments)):
                raise TypeError(
                    f"{name}: expected a function of {', '.join(arguments)}, got one of {inspect.signature(value)}; "
                    "change its arguments"
                )
        if not callable(self.learner) and not isinstance(self.learner, Learner):
            raise TypeError(
                f"learner: expected a Learner, or a function of the settings, got {type(self.learner).__name__}; write "
                "vages.Learner(objective, optimizer)"
            )
        if (self.maximize or self.minimize) and self.evaluate is None:
            name = "maximize" if self.maximize else "minimize"
            raise ValueError(f"{name}: expected a number of `evaluate`, got no such function; give one")

    def with_(self, **settings: Any) -> "Recipe":
        """The same recipe with other settings."""
        known = [one.name for one in fields(self.settings)]
        if unknown := [name for name in settings if name not in known]:
            raise ValueError(f"{unknown[0]}: expected one of the settings {', '.join(known)}, got another; check it")
        other = replace(self.settings, **settings)
        if self.parts is None:
            return replace(self, settings=other)
        return replace(self.parts.of(other), units=self.units)

    def with_sampling(self, length: float | None) -> "Recipe":
        """The recipe with a sampling schedule of this length; 1 is the paper's 2,700 steps, or 18 of Heun's method."""
        if length is None:
            return self
        if self.annealed is None and not self.flows:
            raise ValueError(f"sampling: expected nothing for {self.kind}, got {length}; it is for models of images")
        if not 0 < length <= 10:
            raise ValueError(f"sampling: expected a length above 0, up to 10, got {length}; 1 is the usual one")
        if self.annealed is not None:
            return self.with_(sampling=length)
        return self.with_(sampling_steps=max(2, round(length * ImageSettings.sampling_steps)))

    @property
    def kind(self) -> str:
        """The kind of model, in words."""
        return self.settings.kind

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its runs, which are trained in one program."""
        return tuple(self.settings.seed + i for i in range(getattr(self.settings, "seeds", 1)))

    @property
    def stacked(self) -> bool:
        """Whether models have an axis of seeds."""
        return len(self.seeds) > 1 or (self.parts is not None and self.parts.stacked)

    @property
    def evaluate_every(self) -> int:
        """Iterations between two evaluations."""
        own = None if self.parts is None else self.parts.evaluate_every
        return self.settings.evaluate_every if own is None else own

    @property
    def place(self) -> str | None:
        """The name or path of its data; None if they come from a function or are given as values."""
        if self.parts is not None:
            return self.settings.data
        if not isinstance(self.data, str | Path):
            return None
        return str(placed(Path(self.data), None if self.origin is None else self.origin.path.parent))

    @property
    def is_named(self) -> bool:
        """Whether its data are found without a path."""
        return self.place is None or (self.parts is not None and self.place in self.parts.named)

    def at(self, place: str) -> "Recipe":
        """The recipe with data from another path."""
        return replace(self, data=Path(place).absolute()) if self.parts is None else self.with_(data=place)

    def load(self, *, check: bool = True) -> Examples:
        """Load the data, standardized if the settings say so. With `check`, raise if training would refuse them."""
        data = self._load(check)
        return data.standardized(self.units) if self.standardizes else data

    @property
    def standardizes(self) -> bool:
        """Whether the model is trained on standardized data."""
        return getattr(self.settings, "standardize", False)

    def _load(self, check: bool) -> Examples:
        if self.parts is not None:
            return self.parts.load(self.settings, check)
        made = callable(self.data) and not hasattr(self.data, "shape")
        data = self.data(self.settings) if made else self.data
        if made and is_stream(data):
            return of_stream(lambda: self.data(self.settings))
        place = data if self.place is None else self.place
        return as_examples(place, self.settings.seed, exact=self.standardizes)

    def make(self, key: PRNGKeyArray, data: Examples) -> tuple[EBLVM, Posterior]:
        """Return a model and a posterior before training."""
        made: Any = self.build(key, self.settings, data)
        if not (isinstance(made, tuple) and len(made) == 2):
            got = f"{len(made)} values" if isinstance(made, tuple) else type(made).__name__
            raise TypeError(f"build: expected (model, posterior), got {got}; return both")
        check_kind("build, its model", made[0], EBLVM, "a vages.EBLVM", "return (model, posterior)")
        if data.units is not None and not made[0].v.continuous:
            raise ValueError(f"standardize: expected real v, got {made[0].v!r}; leave it out")
        advice = "return (model, posterior); a model without latents has vages.ExactPosterior()"
        check_kind("build, its posterior", made[1], Posterior, "a vages.Posterior", advice)
        return made

    def make_learner(self) -> Learner:
        """Return the learner of these settings. It is the same at each call, so that its step is traced once."""
        return self._learner

    @cached_property
    def _learner(self) -> Learner:
        learner = self.learner if isinstance(self.learner, Learner) else self.learner(self.settings)
        check_kind("learner", learner, Learner, "a Learner", "return vages.Learner(objective, optimizer)")
        return learner

    def make_sampler(self, posterior: Posterior | None = None) -> Any:
        """Return the sampler of these settings, or None. `Heun` without a posterior gets this one."""
        made = callable(self.sampler) and not hasattr(self.sampler, "draw")
        sampler = self.sampler(self.settings) if made else self.sampler
        return replace(sampler, posterior=posterior) if isinstance(sampler, Heun) and not sampler.posterior else sampler

    def settled(self, data: Examples) -> "Recipe":
        """Return the recipe with settings and units completed by its data."""
        settled = self
        if self.parts is not None and self.parts.settle is not None:
            settings = self.parts.settle(data)
            settled = self if settings == self.settings else self.parts.of(settings)
        return settled if settled.units is data.units else replace(settled, units=data.units)

    @property
    def annealed(self) -> Annealed | None:
        """The paper's sampler of images, if the recipe uses it."""
        sampler = self.make_sampler()
        return sampler if isinstance(sampler, Annealed) else None

    @property
    def flows(self) -> bool:
        """Whether images are sampled by Heun's method, from noise of the highest level."""
        return self.draws_images and isinstance(self.make_sampler(), Heun)

    @property
    def draws_images(self) -> bool:
        """Whether its samples are images, for FID and KID."""
        return self.parts is not None and self.parts.rank == 3

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise that an evaluation adds."""
        return float(self.noise(self.settings) if callable(self.noise) else self.noise)

    @property
    def objective(self) -> Objective:
        """The objective of the learner."""
        return self.make_learner().objective

    def check(self) -> None:
        """Raise if something that training needs is missing."""
        if self.parts is not None:
            self.parts.check()

    @property
    def free(self) -> frozenset[str]:
        """The settings that may differ when a run is resumed."""
        own = frozenset() if self.parts is None else self.parts.free
        return own | {"steps"} if self.same_until == math.inf else own

    @cached_property
    def same_until(self) -> float:
        """Number of iterations that do not depend on `settings.steps`: inf, or those before the rate decays."""
        if self.parts is not None:
            return self.parts.same_until
        return 0.0 if self._learner_reads_steps() or self._build_reads_steps() else math.inf

    def _learner_reads_steps(self) -> bool:
        if isinstance(self.learner, Learner):
            return False
        read, names = _recorded(self.settings)
        learner: Any = self.learner(read)
        one = {"parameter": jnp.zeros(())}
        try:  # schedules read settings only when a step is made
            with jax.numpy_dtype_promotion("standard"):
                for optimizer in learner.optimizers:
                    optimizer.update(one, optimizer.init(one), one)
        except Exception:  # an optimizer for certain parameters: it may read them
            return True
        return "steps" in names

    def _build_reads_steps(self) -> bool:
        """Whether `build` reads `steps`. Nothing is computed, and the data are loaded only if `build` uses them."""
        read, names = _recorded(self.settings)
        shapes = lambda data: eqx.filter_eval_shape(lambda key: self.build(key, read, data), jax.random.key(0))
        for data in (lambda: _Later(self.load), self.load):
            with suppress(Exception):  # training will raise the error
                shapes(data())
                break
        return "steps" in names


class _Later:
    """Data that are loaded on first access."""

    def __init__(self, load: Callable[[], Examples]):
        self._load, self._data = load, None

    def __getattr__(self, name: str) -> Any:
        self._data = self._load() if self._data is None else self._data
        return getattr(self._data, name)


def _takes(function: Any, count: int) -> bool:
    """Whether a function accepts `count` arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _recorded(settings: Any) -> tuple[Any, set[str]]:
    """Return a copy of the settings, and a set that collects the names of the settings that are read from it."""
    names = set[str]()

    def read(self: Any, name: str) -> Any:
        names.add(name)
        return object.__getattribute__(self, name)

    kind = type(type(settings).__name__, (type(settings),), {"__getattribute__": read})
    copy = object.__new__(kind)
    copy.__dict__.update(vars(settings))
    names.clear()
    return copy, names


def example_of(shape: tuple[int, ...]) -> Examples:
    """Return an example of zeros and one of ones, for presets, which use only shape and scale."""
    both = np.broadcast_to(np.arange(2, dtype=np.float32).reshape(2, *[1] * len(shape)), (2, *shape))
    return Examples(Splits(both, both, both))
