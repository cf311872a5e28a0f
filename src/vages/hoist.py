"""Splitting the noise off a step, so that the noise of many iterations can be drawn in one call.

A step calls `jax.random.normal(key, …)` wherever it needs noise. `hoist` traces it and divides its equations: those
that depend on the key alone become `draw`, all others `update`. A training loop calls `draw` under `vmap` for a block
of iterations. Otherwise small models would spend half of their time in the random number generator.
"""

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import PRNGKeyArray


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Primitives allowed in `draw`. None has effects. Each is exact or elementwise, so that its result is bit-identical for
# any number of iterations drawn together. Sums and matrix products are not, and stay in `update`.
_CHEAP = _names(  # may be computed on either side, or on both
    """abs add and argmax argmin bitcast_convert_type broadcast_in_dim ceil clamp concatenate convert_element_type copy
    copy_p div dynamic_slice eq expand_dims floor ge gt integer_pow iota is_finite le lt max min mul ne neg not or pad
    reduce_and reduce_max reduce_min reduce_or reduce_precision rem reshape rev round select_n shift_left
    shift_right_arithmetic shift_right_logical sign slice split square squeeze stack stop_gradient sub tile transpose
    unstack xor"""
)
_COSTLY = _names(
    """acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt clz cos cosh digamma erf erf_inv erfc exp exp2
    expm1 gather lgamma log log1p logistic nextafter population_count pow random_bits random_fold_in random_gamma
    random_seed random_split random_unwrap random_wrap rsqrt sin sinh sort sqrt tan tanh threefry2x32"""
)
_SHAPING = _names("broadcast_in_dim expand_dims reshape squeeze transpose")
_JITTED = _names("jit pjit")
_CALLS = _JITTED | _names("closed_call cond core_call custom_jvp_call custom_vjp_call scan while")
_THREEFRY = "key<fry>"  # other generators draw different bits under `vmap`
_UNLIMITED = 2**62  # bytes

Draw = Callable[[PRNGKeyArray], Any]
Update = Callable[..., Any]


def hoist(step: Callable[..., Any], key: PRNGKeyArray, *arguments: Any) -> tuple[Draw, Update]:
    """Split `step(key, *arguments)` into `draw(key)` and `update(drawn, *arguments)`.

    `update(draw(key), *arguments)` equals `step(key, *arguments)` for any key and arguments of these shapes.

    **Arguments**

    - `step`: a function of a key and of pytrees of arrays. It returns a pytree of arrays.
    - `key`, `arguments`: example values, or `jax.ShapeDtypeStruct`s.

    **Returns**

    `(draw, update)`. `draw` returns a list of arrays, random bits and elementwise functions of them, chosen to take the
    least memory. Sums, matrix products and effects (`jax.debug`) stay in `update`, as do draws in a loop or branch that
    also reads the arguments. If a step cannot be split, a warning says why, `draw` returns the key, and `update` is the
    step.

    The same `step` is traced and split once for arguments of the same shapes.
    """
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(key, *arguments)
    split = _split if any(isinstance(each, Tracer) for each in closed.consts) else _split_once
    try:
        draw, finish = split(closed)
        jax.eval_shape(draw, key)
    except Exception as error:  # any error, also of another JAX version: the unsplit step is correct, only slower
        warnings.warn(
            f"step: the noise of an iteration is drawn in it and not ahead of it, which is slower: {error!r}",
            RuntimeWarning,
            stacklevel=2,
        )
        return (lambda key: key), step

    def update(drawn: Sequence[Any], *arguments: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure(shapes), finish(*jax.tree.leaves(arguments), *drawn))

    return draw, update


def _split(closed: ClosedJaxpr) -> tuple[Callable[..., list[Any]], Callable[..., list[Any]]]:
    """Return `draw(key)` and `finish(*arguments, *drawn)` of a jaxpr with the inputs (key, *arguments)."""
    jaxpr = closed.jaxpr
    if any(hasattr(effect, "input") or hasattr(effect, "input_index") for effect in jaxpr.effects):
        raise ValueError("the step writes to references")
    key, *arguments = jaxpr.invars
    program, values = _Program(key, dict(zip(jaxpr.constvars, closed.consts, strict=True))), {}
    program.add(jaxpr.eqns, values)
    outputs = [_read(values, atom) for atom in jaxpr.outvars]
    needed = _used(program.staying, outputs)
    kept = program.smallest(needed)

    def function(inputs: list[Var], outputs: list[Any], equations: list[JaxprEqn], effects: Any):
        used = _used(equations, outputs)
        constants = {variable: value for variable, value in program.constants.items() if variable in used}
        part = jaxpr.replace(
            constvars=list(constants),
            invars=inputs,
            outvars=outputs,
            eqns=equations,
            effects=effects,
            debug_info=jaxpr.debug_info.with_unknown_names(),
        )
        return jaxpr_as_fun(ClosedJaxpr(part, list(constants.values())))

    draw = function([key], kept, program.select(kept), frozenset())
    finish = function([*arguments, *kept], outputs, program.select(needed, kept, program.staying), jaxpr.effects)
    return draw, finish


_split_once = lru_cache(maxsize=4)(_split)  # JAX returns the same jaxpr for a function that it has traced before


class _Program:
    """Equations in order. Jitted functions that contain draws among other equations are inlined."""

    def __init__(self, key: Var, constants: dict[Var, Any]):
        self.constants = constants
        # The values that do not depend on the arguments, and whether they depend on the key.
        self.known = {key: True} | dict.fromkeys(constants, False)
        self.origin: dict[Var, JaxprEqn] = {}  # the equation that computes each known value
        self.equations: list[JaxprEqn] = []
        self.staying: list[JaxprEqn] = []  # the equations whose values are not known

    def add(self, equations: Iterable[JaxprEqn], values: dict[Var, Any]) -> None:
        """Append equations. `values` maps their variables to those of the program, and is extended."""
        for equation in equations:
            inputs = [_read(values, atom) for atom in equation.invars]
            drawn = _drawn(equation, inputs, self.known)
            if drawn is None and _has_draws(equation, inputs, self.known):
                outputs = self._add_inlined(equation.params["jaxpr"], inputs)
            else:
                outputs = [Var(variable.aval) for variable in equation.outvars]
                renamed = equation.replace(invars=inputs, outvars=outputs)
                self.equations.append(renamed)
                if drawn is None:
                    self.staying.append(renamed)
                else:
                    self.known.update(dict.fromkeys(outputs, drawn))
                    self.origin.update(dict.fromkeys(outputs, renamed))
            values.update(zip(equation.outvars, outputs, strict=True))

    def _add_inlined(self, closed: ClosedJaxpr, inputs: list[Any]) -> list[Any]:
        jaxpr = closed.jaxpr
        constants = {Var(variable.aval): value for variable, value in zip(jaxpr.constvars, closed.consts, strict=True)}
        self.constants.update(constants)
        self.known.update(dict.fromkeys(constants, False))
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))
        self.add(jaxpr.eqns, values)
        return [_read(values, atom) for atom in jaxpr.outvars]

    def smallest(self, needed: Iterable[Var]) -> list[Var]:
        """Return the smallest set of drawn values from which cheap equations compute those that are needed."""
        drawn: list[Any] = [variable for variable, drawn in self.known.items() if drawn]
        cheap = [variable for variable in drawn if variable in self.origin and _cheap(self.origin[variable])]
        kept = _smallest_cut(
            {variable: self._price(variable) for variable in drawn},
            [(v, variable) for variable in cheap for v in _variables(self.origin[variable].invars) if self.known[v]],
            set(drawn).difference(cheap),
            [variable for variable in needed if self.known.get(variable)],
        )
        return [variable for variable in drawn if variable in kept]

    def _price(self, variable: Any) -> int:
        """Twice the size in bytes, less one for values that the step has reshaped, so that these win ties."""
        shaped = variable in self.origin and self.origin[variable].primitive.name in _SHAPING
        return max(2 * variable.aval.size * variable.aval.dtype.itemsize - shaped, 0)

    def select(self, wanted: Iterable[Var], given: Iterable[Var] = (), more: Iterable[JaxprEqn] = ()) -> list[JaxprEqn]:
        """Return, in order, the equations `more` and those that compute `wanted` from `given`."""
        seen, chosen, waiting = set(given), set(map(id, more)), list(wanted)
        while waiting:
            variable = waiting.pop()
            if variable in self.origin and variable not in seen:
                chosen.add(id(self.origin[variable]))
                waiting.extend(_variables(self.origin[variable].invars))
            seen.add(variable)
        return [equation for equation in self.equations if id(equation) in chosen]


def _drawn(equation: JaxprEqn, inputs: Sequence[Any], known: dict[Var, bool]) -> bool | None:
    """Whether an equation depends on the key; None if it depends on the arguments or has to stay in `update`."""
    variables = _variables(inputs)
    if not all(variable in known for variable in variables) or not _movable(equation):
        return None
    return any(known[variable] for variable in variables)


def _has_draws(equation: JaxprEqn, inputs: Sequence[Any], known: dict[Var, bool]) -> bool:
    """Whether an equation is a jitted function that computes something costly from the key alone."""
    if equation.primitive.name not in _JITTED or not any(known.get(variable) for variable in _variables(inputs)):
        return False
    jaxpr = equation.params["jaxpr"].jaxpr
    within = dict.fromkeys(jaxpr.constvars, False)
    for variable, value in zip(jaxpr.invars, inputs, strict=True):
        if isinstance(value, Literal) or value in known:
            within[variable] = not isinstance(value, Literal) and known[value]
    for inner in jaxpr.eqns:
        drawn = _drawn(inner, inner.invars, within)
        if (drawn and not _cheap(inner)) or (drawn is None and _has_draws(inner, inner.invars, within)):
            return True
        within.update({} if drawn is None else dict.fromkeys(inner.outvars, drawn))
    return False


def _movable(equation: JaxprEqn) -> bool:
    """Whether an equation may move to `draw`."""
    if any(_is_other_key(variable) for variable in (*equation.invars, *equation.outvars)):
        return False
    if inner := list(_inner(equation)):
        return equation.primitive.name in _CALLS and all(_movable(each) for jaxpr in inner for each in jaxpr.eqns)
    return equation.primitive.name in _CHEAP | _COSTLY


def _cheap(equation: JaxprEqn) -> bool:
    if equation.primitive.name in _JITTED:
        return all(_cheap(inner) for jaxpr in _inner(equation) for inner in jaxpr.eqns)
    return equation.primitive.name in _CHEAP


def _is_other_key(variable: Any) -> bool:
    dtype = getattr(variable.aval, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and dtype.name != _THREEFRY


def _inner(equation: JaxprEqn) -> Iterator[Jaxpr]:
    for value in equation.params.values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Jaxpr | ClosedJaxpr):
                yield each if isinstance(each, Jaxpr) else each.jaxpr


def _read(values: dict[Var, Any], atom: Any) -> Any:
    return atom if isinstance(atom, Literal) else values.get(atom, atom)


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _used(equations: Iterable[JaxprEqn], outputs: Iterable[Any]) -> set[Var]:
    return set(_variables(outputs)).union(*(_variables(equation.invars) for equation in equations))


def _smallest_cut(
    sizes: dict[Any, int], edges: Iterable[tuple[Any, Any]], sources: Iterable[Any], sinks: Iterable[Any]
) -> set[Any]:
    """Return the minimum vertex cut between sources and sinks; among equal cuts, the nearest to the sources.

    It is computed by maximum flow (Edmonds and Karp). A vertex is an edge from (vertex, 0) to (vertex, 1) with its size
    as capacity.
    """
    free: dict[Hashable, dict[Hashable, int]] = {}  # residual capacity of each edge

    def connect(a: Hashable, b: Hashable, size: int) -> None:
        free.setdefault(a, {})[b] = size
        free.setdefault(b, {}).setdefault(a, 0)

    for vertex, size in sizes.items():
        connect((vertex, 0), (vertex, 1), size)
    for a, b in edges:
        connect((a, 1), (b, 0), _UNLIMITED)
    for source in sources:
        connect("source", (source, 0), _UNLIMITED)
    for sink in sinks:
        connect((sink, 1), "sink", _UNLIMITED)
    while True:
        came: dict[Hashable, Hashable] = {"source": "source"}
        waiting: deque[Hashable] = deque(["source"])
        while waiting and "sink" not in came:
            here = waiting.popleft()
            for there, room in free.get(here, {}).items():
                if room > 0 and there not in came:
                    came[there] = here
                    waiting.append(there)
        if "sink" not in came:
            return {vertex for vertex in sizes if (vertex, 0) in came and (vertex, 1) not in came}
        path: list[Hashable] = ["sink"]
        while path[-1] != "source":
            path.append(came[path[-1]])
        pairs = list(zip(path[1:], path[:-1], strict=True))
        flow = min(free[a][b] for a, b in pairs)
        for a, b in pairs:
            free[a][b] -= flow
            free[b][a] += flow
