"""Models and posteriors as JSON and back: classes and functions by name, from fixed tables, and arrays by path.

Anything that is not in a table, such as a user's own class or function, has only its name and cannot be built.
"""

import inspect
import json
import math
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vages import models, nets, posteriors
from vages.domains import Binary, Domain, Empty, Real
from vages.nets import conditional, mixer, unet
from vages.nets.resnet import Block
from vages.posteriors import Conditioned
from vages.storage.errors import Unexpected
from vages.terminal import printable

_MODELS = ("GRBM", "LinearGaussian", "DeepEBLVM", "EBM", "Mixed", "EnergyModel", "NoiseConditionalEBLVM", "Coupling")
_MODELS += ("InContext",)
_POSTERIORS = ("BernoulliPosterior", "CategoricalPosterior", "GaussianPosterior", "JointPosterior", "ExactPosterior")
_POSTERIORS += ("MixedPosterior", "Conditioned", "Heads", "Halves", "FeaturePosterior")
_NETS = ("ConvEncoder", "Quadratic", "Readout", "ResNet", "ResidualMLP", "UNet", "ConditionalMLP", "Mixer")
_LAYERS = ("Linear", "Identity", "Lambda", "Sequential", "MLP", "Conv1d", "Conv2d", "Conv3d", "LayerNorm", "RMSNorm")
_LAYERS += ("GroupNorm", "PReLU")
_PARTS = {"Block": Block, "ConditionalBlock": conditional.ConditionalBlock, "Embedding": conditional.Embedding}
_PARTS |= {"UNetBlock": unet.Block, "Conv": unet.Conv, "Attention": unet.Attention, "MixerBlock": mixer.MixerBlock}
_CLASSES: dict[str, Any] = _PARTS | {
    prefix + name: getattr(room, name)
    for room, prefix, names in (
        (models, "", _MODELS),
        (posteriors, "", _POSTERIORS),
        (nets, "", _NETS),
        (eqx.nn, "eqx.nn.", _LAYERS),
    )
    for name in names
}
_NN = ("celu", "elu", "gelu", "hard_sigmoid", "hard_silu", "hard_tanh", "identity", "leaky_relu", "log_sigmoid", "mish")
_NN += ("relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "squareplus", "tanh")
_FUNCTIONS: dict[str, Any] = {f"jax.nn.{name}": getattr(jax.nn, name) for name in _NN}
_FUNCTIONS |= {f"jax.numpy.{name}": getattr(jnp, name) for name in ("abs", "cos", "exp", "sin", "square")}
_FUNCTIONS["eqx.nn.MLP.final_activation"] = inspect.signature(eqx.nn.MLP).parameters["final_activation"].default
_DOMAINS: dict[str, Any] = {"Real": Real, "Binary": Binary, "Empty": Empty}
_DOMAIN = re.compile(rf"({'|'.join(_DOMAINS)})\(((?:[1-9][0-9]{{0,8}}(?:, )?)*)\)")
_ODD = ("inf", "-inf", "nan")  # numbers that JSON cannot represent
_DTYPES = ("bfloat16", "float16", "float32", "float64")
_TAGS = {"array", "class", "dict", "domain", "dtype", "fields", "float", "function", "list", "other", "tuple"}
_MAX_LEAD = 2  # most leading axes of seeds


def is_array(value: Any) -> bool:
    """Whether a value is an array or scalar of JAX or NumPy, or a `jax.ShapeDtypeStruct`."""
    return eqx.is_array(value) or isinstance(value, jax.ShapeDtypeStruct)


def describe(value: Any, name: str, arrays: dict[str, Any], static: bool = False) -> Any:
    """Return the value as JSON. Its arrays are added to `arrays` under their paths, which begin with `name`."""
    kind: Any = type(value)
    inner = lambda value, key, static=static: describe(value, f"{name}/{key}", arrays, static)
    if static and isinstance(value, np.generic):  # jit compares them as Python numbers
        return describe(value.item(), name, arrays)
    if is_array(value):
        _add(arrays, name, value)
        return {"array": name}
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind in (list, tuple):
        return {kind.__name__: [inner(item, i) for i, item in enumerate(value)]}
    if kind is dict and all(type(key) is str for key in value):
        return {"dict": {key: inner(item, key) for key, item in value.items()}}
    if (known := _named(_CLASSES, kind)) is not None:
        parts = {
            field.name: inner(getattr(value, field.name), field.name, _is_static(field)) for field in fields(value)
        }
        return {"class": known, "fields": parts}
    if (known := _named(_FUNCTIONS, value)) is not None:
        return {"function": known}
    if isinstance(value, Domain):
        return {"domain": repr(value)}
    if isinstance(value, np.dtype) and value.name in _DTYPES:
        return {"dtype": value.name}
    for path, leaf in jax.tree_util.tree_leaves_with_path(value):
        if is_array(leaf):
            _add(arrays, f"{name}/{jax.tree_util.keystr(path, simple=True, separator='/')}", leaf)
    named = getattr(value, "__qualname__", None)
    return {"other": kind.__qualname__ if named is None else f"the function {named}"}


def others(node: Any, name: str) -> Iterator[str]:
    """Yield the parts of a description that cannot be built, as in "EnergyModel.energy is the function two_moons"."""
    match node:
        case {"other": text}:
            yield f"{name} is {printable(str(text)[:80])}"
        case {"class": kind, "fields": dict(parts)}:
            for key, part in parts.items():
                yield from others(part, printable(f"{kind}.{key}"[:80]))
        case dict() | list():
            for item in node.values() if isinstance(node, dict) else node:
                yield from others(item, name)


def completed(node: Any) -> Any:
    """Return the description of an earlier version with the defaults of fields that its classes have gained since."""
    match node:
        case {"class": str(known), "fields": dict(parts)} if known in _CLASSES:
            since = {field.name: _default(field) for field in fields(_CLASSES[known])}
            added = {key: value for key, value in since.items() if key not in parts and value is not MISSING}
            return node | {"fields": {key: completed(part) for key, part in parts.items()} | added}
        case {"dict": dict(parts)}:
            return node | {"dict": {key: completed(part) for key, part in parts.items()}}
        case {"list": list(items)} | {"tuple": list(items)}:
            return node | {next(iter(node)): [completed(item) for item in items]}
    return node


def difference(saved: dict[Any, Any], given: dict[Any, Any], name: str = "") -> tuple[str, str, str] | None:
    """Return the first place where descriptions differ, and both parts, or None. Unknown parts are taken as equal."""
    for key in {**saved, **given}:
        place = f"{name}/{key}".lstrip("/")
        if key not in saved or key not in given:
            expected, got = (_told(one[key]) if key in one else "no such part" for one in (saved, given))
            return place, expected, got
        if (found := _differs(saved[key], given[key], place)) is not None:
            return found
    return None


def _differs(saved: Any, given: Any, name: str) -> tuple[str, str, str] | None:
    if isinstance(saved, dict) and isinstance(given, dict) and set(saved) == set(given):
        match saved, given:
            case {"other": _}, {"other": _}:
                return None
            case {"class": one, "fields": dict(mine)}, {"class": other, "fields": dict(theirs)} if one == other:
                return difference(mine, theirs, name)
            case {"dict": dict(mine)}, {"dict": dict(theirs)}:
                return difference(mine, theirs, name)
            case ({"list": list(mine)}, {"list": list(theirs)}) | ({"tuple": list(mine)}, {"tuple": list(theirs)}):
                return difference(dict(enumerate(mine)), dict(enumerate(theirs)), name)
    return None if json.dumps(saved) == json.dumps(given) else (name, _told(saved), _told(given))


def _told(node: Any) -> str:
    """Return a short text for a part of a description."""
    match node:
        case {"array": _}:
            return "an array"
        case {"list": list(items)} | {"tuple": list(items)} | {"dict": dict(items)}:
            return f"a {next(iter(node))} of {len(items)}"
        case {"other": text} | {"float": text}:
            return printable(str(text)[:80])
        case {"class": text} | {"function": text} | {"domain": text} | {"dtype": text}:
            return printable(json.dumps(text)[:80])
    return printable(json.dumps(node)[:80])


def build(node: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Return the value that `describe` described. Class instances are made without calling constructors."""
    inner = lambda node, key: build(node, f"{name}/{key}", arrays)
    match node:
        case None | bool() | int() | float() | str():
            return node
        case {"array": str(key)} if key == name and key in arrays:
            return arrays[key]
        case {"float": str(text)} if text in _ODD:
            return float(text)
        case {"list": list(items)}:
            return [inner(item, i) for i, item in enumerate(items)]
        case {"tuple": list(items)}:
            return tuple(inner(item, i) for i, item in enumerate(items))
        case {"dict": dict(items)}:
            return {key: inner(item, key) for key, item in items.items()}
        case {"function": str(known)} if known in _FUNCTIONS:
            return _FUNCTIONS[known]
        case {"dtype": str(known)} if known in _DTYPES:
            return jnp.dtype(known)
        case {"domain": str(text)} if (found := _DOMAIN.fullmatch(text)) is not None:
            return _DOMAINS[found[1]](*(int(size) for size in found[2].split(", ") if size))
        case {"class": str(known), "fields": dict(parts)} if known in _CLASSES:
            return _made(_CLASSES[known], {key: inner(part, key) for key, part in parts.items()}, name)
    raise Unexpected(f"{json.dumps(node)[:80]} at {name[:80]!r}, which this version does not know")


def check_fits(model: Any, posterior: Any) -> None:
    """Raise Unexpected unless both can be evaluated at one example of the model's domain. Only shapes are computed.

    Leading axes of seeds are removed first.
    """
    leads = range(_MAX_LEAD + 1)
    one = next((one for one in (_without(model, lead) for lead in leads) if _evaluates(one, None)), None)
    if one is None or not any(posterior is None or _evaluates(one, _without(posterior, lead)) for lead in leads):
        raise Unexpected("arrays of shapes that do not fit each other")


def _evaluates(model: Any, posterior: Any) -> bool:
    def at_zero(model: Any, posterior: Any) -> Any:
        parts = jax.tree.leaves(posterior, is_leaf=lambda part: isinstance(part, Conditioned))
        sizes = dict(pair for part in parts if isinstance(part, Conditioned) for pair in part.sizes)
        dtype = jnp.result_type(float)
        v, context = model.v.zeros(dtype), {name: jnp.zeros(size, dtype) for name, size in sizes.items()}
        features = model.features(v)
        log_joint = model.log_joint(features, model.h.zeros(dtype))
        if posterior is None:
            return log_joint
        q = posterior(model, features, v, *([context] if context else []))
        return log_joint, jax.tree.map(lambda x: x[None], q).draw(jax.random.key(0)), q.log_prob(q.mean)

    try:
        found = eqx.filter_eval_shape(at_zero, model, posterior)
    except Exception:
        return False
    return all(x.shape == () for x in ([found] if posterior is None else [found[0], found[2]]))


def _without(tree: Any, lead: int) -> Any:
    """Return the tree with shapes for its arrays, without the first `lead` axes, and one dtype for floating ones."""
    dtype = lambda x: jnp.result_type(float) if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[lead:], dtype(x)) if is_array(x) else x, tree)


def _made(kind: Any, parts: dict[str, Any], name: str) -> Any:
    wanted = {field.name: None for field in fields(kind)}
    for key in {**wanted, **parts}:
        if key not in parts:
            raise Unexpected(f"no {key!r} at {name[:80]!r}, which {kind.__name__} has")
        if key not in wanted:
            raise Unexpected(f"{key[:80]!r} at {name[:80]!r}, which {kind.__name__} of this version does not have")
    made = object.__new__(kind)
    for key, part in parts.items():
        object.__setattr__(made, key, part)
    for key, shape in _declared(made).items():
        array = getattr(made, key)
        if array is not None and (array.shape[-len(shape) :] != shape or 0 in shape):
            needed = str(list(shape))[:80]
            raise Unexpected(f"{list(array.shape)} for {f'{name}/{key}'[:80]!r}, which {kind.__name__} has as {needed}")
    for base in kind.__mro__:
        if "__check_init__" in vars(base):
            base.__check_init__(made)
    return made


def _declared(made: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's arrays that follow from its other fields, without leading axes."""
    match made:
        case eqx.nn.Linear():
            out, size = (1 if n == "scalar" else n for n in (made.out_features, made.in_features))
            return {"weight": (out, size), "bias": (out,)}
        case eqx.nn.Conv():
            ones = (1,) * made.num_spatial_dims
            inputs = made.in_channels // made.groups
            return {"weight": (made.out_channels, inputs, *made.kernel_size), "bias": (made.out_channels, *ones)}
        case models.GRBM() | models.LinearGaussian():
            *lead, v, h = made.weight.shape
            return {"visible_bias": (*lead, v), "latent_bias": (*lead, h)}
    return {}


def _named(table: dict[str, Any], value: Any) -> str | None:
    return next((name for name, known in table.items() if known is value), None)


def _default(field: Any) -> Any:
    """Return the description of a field's default, or MISSING if it has none."""
    if field.default is not MISSING:
        return describe(field.default, field.name, {})
    return MISSING if field.default_factory is MISSING else describe(field.default_factory(), field.name, {})


def _is_static(field: Any) -> bool:
    return bool(field.metadata.get("static", False))


def _add(arrays: dict[str, Any], name: str, array: Any) -> None:
    if name in arrays:
        raise ValueError(f"{name}: expected one array of this name, got two; rename the keys that contain '/'")
    arrays[name] = array
