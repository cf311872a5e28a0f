"""A recipe: what is learnt, from which data, and how. Presets are values of it, and so is what a user's file holds."""

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
    """Where a recipe of one's own comes from: FILE.py:NAME, the SHA-256 of the file, the file, and what it says."""

    name: str
    sha256: str
    path: Path
    about: str = ""  # the first paragraph of its docstring


class Parts(NamedTuple):
    """What a family of presets knows beyond a recipe of one's own."""

    of: Callable[[Any], "Recipe"]  # the recipe of other settings
    rank: int  # dimensions of an example
    load: Callable[[Any, bool], Examples]  # the data of settings, checked against the network or not
    named: tuple[str, ...]  # data that need no file
    same_until: float  # the iterations that are the same whatever number of them is planned; inf: all
    activations: Callable[[tuple[int, ...]], int]  # bytes of an iteration, for examples of a shape
    draw: Callable[[Any, bool], Any]  # pictures of a trained run; whether to show progress
    summary: Callable[[Any], str]  # of a run, in a line
    sketch: Callable[[PRNGKeyArray, "Recipe", Any, Any, Examples], bytes | None] | None = None  # while it trains: a PNG
    check: Callable[[], object] = lambda: None  # raises where something that training needs is missing
    copies: int = 1  # of the data that are held: one for each seed, or with mirror images
    stacked: bool = False  # whether one seed has an axis of seeds too, and evaluations see it
    chunk: int | None = None
    evaluate_every: int | None = None  # iterations, where no setting of this name says it
    free: frozenset[str] = frozenset()  # settings that a resumed run may change
    settle: Callable[[Examples], Any] | None = None  # the settings with what the data decide


@dataclass(frozen=True, eq=False)
class Recipe:
    """A model, its data and its training: what `vages train` and the commands on its runs need to know.

    A part is a value, or a function of the settings that returns it.

    **Arguments**

    - `data`: An array, a dict with "v" beside the context, `Splits`, or a .npy, .npz or .csv file: one array is
        divided into 80 % for training, 10 % for validation and 10 % for test. A function of the settings may return
        these, or a stream: a function of the step, or an iterator (see `fit`).
    - `build`: `build(key, settings, data)` returns a model and a posterior. `data.splits.train` are training examples.
    - `learner`: A `Learner`.
    - `settings`: `Training`, or a dataclass derived from it: plain values, which are the options of `vages train`.
    - `sampler`: How `vages sample` draws; None leaves it to `vages.sample`.
    - `evaluate`: `evaluate(key, settings, model, posterior, data)` returns a dict of numbers, which are logged every
        `settings.evaluate_every` iterations.
    - `maximize`, `minimize`: One of these numbers, by which the weights that are kept are selected.
    - `test`: The same function for the end of training; its numbers go into result.json.
    - `pictures`: `pictures(trained)` returns figures of Matplotlib by name; None draws what the domain suggests.
    - `noise`: The standard deviation of the noise on data that the model was trained to know, for `vages evaluate`.
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
    units: Units | None = field(default=None, repr=False)  # of the data that a run was trained on, standardized

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
            raise ValueError(f"{unknown[0]}: expected a setting, one of {', '.join(known)}, got another; check it")
        other = replace(self.settings, **settings)
        if self.parts is None:
            return replace(self, settings=other)
        return replace(self.parts.of(other), units=self.units)

    def with_sampling(self, length: float | None) -> "Recipe":
        """The same with a schedule of images of this length; 1 is the paper's 2,700 steps, or 18 of Heun's method."""
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
        """What the model is, in words."""
        return self.settings.kind

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its runs, which train in one program."""
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
        """The name or file of its data; None where they are made by a function, or are there already."""
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
        """The recipe with the data of another place."""
        return replace(self, data=Path(place).absolute()) if self.parts is None else self.with_(data=place)

    def load(self, *, check: bool = True) -> Examples:
        """The data, standardized where the settings say so. With `check`, what training would refuse is refused."""
        data = self._load(check)
        return data.standardized(self.units) if self._standardizes else data

    @property
    def _standardizes(self) -> bool:
        return getattr(self.settings, "standardize", False)

    def _load(self, check: bool) -> Examples:
        if self.parts is not None:
            return self.parts.load(self.settings, check)
        made = callable(self.data) and not hasattr(self.data, "shape")
        data = self.data(self.settings) if made else self.data
        if made and is_stream(data):
            return of_stream(lambda: self.data(self.settings))
        place = data if self.place is None else self.place
        return as_examples(place, self.settings.seed, exact=self._standardizes)

    def make(self, key: PRNGKeyArray, data: Examples) -> tuple[EBLVM, Posterior]:
        """A model and a posterior before training."""
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
        """The learner of these settings; the same one at each call, so that its step is traced once."""
        return self._learner

    @cached_property
    def _learner(self) -> Learner:
        learner = self.learner if isinstance(self.learner, Learner) else self.learner(self.settings)
        check_kind("learner", learner, Learner, "a Learner", "return vages.Learner(objective, optimizer)")
        return learner

    def make_sampler(self, posterior: Posterior | None = None) -> Any:
        """The sampler of these settings, or None; one that needs a posterior and has none gets this."""
        made = callable(self.sampler) and not hasattr(self.sampler, "draw")
        sampler = self.sampler(self.settings) if made else self.sampler
        return replace(sampler, posterior=posterior) if isinstance(sampler, Heun) and not sampler.posterior else sampler

    def settled(self, data: Examples) -> "Recipe":
        """The recipe with the settings that its data decide."""
        settled = self
        if self.parts is not None and self.parts.settle is not None:
            settings = self.parts.settle(data)
            settled = self if settings == self.settings else self.parts.of(settings)
        return settled if settled.units is data.units else replace(settled, units=data.units)

    @property
    def annealed(self) -> Annealed | None:
        """The paper's sampler of images, where the recipe has it."""
        sampler = self.make_sampler()
        return sampler if isinstance(sampler, Annealed) else None

    @property
    def flows(self) -> bool:
        """Whether it is of images that are drawn by Heun's method, from noise of the highest level."""
        return self.draws_images and isinstance(self.make_sampler(), Heun)

    @property
    def draws_images(self) -> bool:
        """Whether its samples are images that a network can judge."""
        return self.parts is not None and self.parts.rank == 3

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise that an evaluation adds."""
        return float(self.noise(self.settings) if callable(self.noise) else self.noise)

    @property
    def objective(self) -> Objective:
        """What is learnt by."""
        return self.make_learner().objective

    def check(self) -> None:
        """Raise where something that training needs is missing."""
        if self.parts is not None:
            self.parts.check()

    @property
    def free(self) -> frozenset[str]:
        """The settings that may differ when a run is resumed."""
        own = frozenset() if self.parts is None else self.parts.free
        return own | {"steps"} if self.same_until == math.inf else own

    @cached_property
    def same_until(self) -> float:
        """The iterations that do not depend on `settings.steps`: inf, or as many as are made before the rate decays."""
        if self.parts is not None:
            return self.parts.same_until
        return 0.0 if self._learner_reads_steps() or self._build_reads_steps() else math.inf

    def _learner_reads_steps(self) -> bool:
        if isinstance(self.learner, Learner):
            return False
        read, names = _recorded(self.settings)
        learner: Any = self.learner(read)
        one = {"parameter": jnp.zeros(())}
        try:  # schedules are read when a step is made
            with jax.numpy_dtype_promotion("standard"):
                for optimizer in learner.optimizers:
                    optimizer.update(one, optimizer.init(one), one)
        except Exception:  # an optimizer of certain parameters alone: nobody knows
            return True
        return "steps" in names

    def _build_reads_steps(self) -> bool:
        """Nothing is computed, and the data are read only where `build` looks at them."""
        read, names = _recorded(self.settings)
        shapes = lambda data: eqx.filter_eval_shape(lambda key: self.build(key, read, data), jax.random.key(0))
        for data in (lambda: _Later(self.load), self.load):
            with suppress(Exception):  # training will say what is wrong
                shapes(data())
                break
        return "steps" in names


class _Later:
    """Data that are read when they are first looked at."""

    def __init__(self, load: Callable[[], Examples]):
        self._load, self._data = load, None

    def __getattr__(self, name: str) -> Any:
        self._data = self._load() if self._data is None else self._data
        return getattr(self._data, name)


def _takes(function: Any, count: int) -> bool:
    """Whether a function can be called with so many arguments; where that cannot be told, it can."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _recorded(settings: Any) -> tuple[Any, set[str]]:
    """The same settings, and the names of those that are read from then on."""
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
    """An example of zeros and one of ones, for presets, which look at shape and scale alone."""
    both = np.broadcast_to(np.arange(2, dtype=np.float32).reshape(2, *[1] * len(shape)), (2, *shape))
    return Examples(Splits(both, both, both))
