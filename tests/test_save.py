"""`load` restores every bit that `save` wrote. Damaged, foreign or mismatched files are refused in one line."""

import inspect
import json
import os
import random
import subprocess
import sys
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import vages
from errors import refused
from vages.domains import Binary, Real
from vages.files import BadFile
from vages.posteriors import Conditioned, Halves, MixedPosterior
from vages.training import structure

KEY = jax.random.key(0)
FUZZ = int(os.environ.get("VAGES_FUZZ", "100"))


def own_layers():
    first, last = jax.random.split(KEY)
    mlp = eqx.nn.MLP(5, 6, 7, 2, activation=eqx.nn.PReLU(), final_activation=jnp.sin, key=last)
    layers = [eqx.nn.Linear(4, 5, use_bias=False, key=first), eqx.nn.LayerNorm(5), eqx.nn.Lambda(jax.nn.tanh), mlp]
    return vages.GaussianPosterior(Halves(eqx.nn.Sequential(layers)))


def grbm(**about):
    return vages.GRBM.init(KEY, 4, 3, **about)


def linear_gaussian():
    return vages.LinearGaussian.init(KEY, 4, 3)


def deep():
    return vages.DeepEBLVM.vectors(KEY, 4, width=5, depth=2, latents=3, head_width=2)


PAIRS = {
    "model alone": lambda: (grbm(), None),
    "Bernoulli": lambda: (grbm(scalar_sigma=True), vages.BernoulliPosterior.linear(KEY, 4, 3, 0.25)),
    "bfloat16": lambda: (grbm(dtype=jnp.bfloat16), vages.ExactPosterior()),
    "float16": lambda: (grbm(dtype=jnp.float16), None),
    "linear": lambda: (linear_gaussian(), vages.GaussianPosterior.linear(KEY, 4, 3)),
    "exact": lambda: (linear_gaussian(), vages.ExactPosterior()),
    "images": lambda: (
        vages.DeepEBLVM.images(KEY, (1, 8, 8), width=2, depth=2, latents=3),
        vages.GaussianPosterior.convolutional(KEY, (1, 8, 8), 3, width=2),
    ),
    "vectors": lambda: (deep(), vages.GaussianPosterior.mlp(KEY, 4, 3, width=5, depth=1)),
    "EBM of images": lambda: (vages.EBM.images(KEY, (1, 8, 8), width=2, depth=1), vages.ExactPosterior()),
    "EBM of vectors": lambda: (vages.EBM.vectors(KEY, (2, 2), width=3, depth=2), None),
    "mixed": lambda: (
        vages.Mixed(deep(), jnp.bfloat16),
        MixedPosterior(vages.GaussianPosterior.mlp(KEY, 4, 3, width=5, depth=1), jnp.float16),
    ),
    "context, Bernoulli": lambda: (grbm(), vages.BernoulliPosterior.linear(KEY, 4, 3, context={"label": 3, "age": 1})),
    "context, MLP": lambda: (
        linear_gaussian(),
        vages.GaussianPosterior.mlp(KEY, 4, 3, width=2, depth=1, context={"label": 3}),
    ),
    "joint": lambda: (
        grbm(),
        vages.JointPosterior(
            {
                "z": vages.GaussianPosterior.linear(KEY, 4, 2),
                "y": vages.CategoricalPosterior.linear(KEY, 4, 2, 3, float("inf")),
            }
        ),
    ),
    "layers": lambda: (linear_gaussian(), own_layers()),
    "noise-conditional vectors": lambda: _noise_conditional(
        vages.NoiseConditionalEBLVM.vectors(
            KEY, 3, sigma_data=0.7, h=Binary(2), width=4, depth=1, features=3, head_width=2, embedding=4, classes=2
        )
    ),
    "noise-conditional images": lambda: _noise_conditional(
        vages.NoiseConditionalEBLVM.images(
            KEY,
            (1, 4, 4),
            sigma_data=0.5,
            h=Real(2),
            widths=(2, 4),
            blocks=1,
            features=3,
            head_width=2,
            embedding=4,
            compute_dtype="bfloat16",
        )
    ),
    "noise-conditional patches": lambda: _noise_conditional(patches()),
    "in context": lambda: (vages.InContext(patches(), {"sigma": 0.1}), None),
}


def patches():
    return vages.NoiseConditionalEBLVM.patches(
        KEY, (1, 4, 4), sigma_data=0.5, h=Real(2), width=4, depth=1, patch=2, features=3, head_width=2, embedding=4
    )


def _noise_conditional(model):
    return model, vages.FeaturePosterior.init(KEY, model, width=3)


@cache
def pair_of(name):
    return PAIRS[name]()


def bits(tree):
    """The path, type, dtype, shape and bytes of every array leaf; other leaves unchanged."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        place = jax.tree_util.keystr(path)
        if not structure.is_array(leaf):
            found.append((place, leaf))
            continue
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()
        found.append((place, isinstance(leaf, jax.Array), isinstance(leaf, np.generic), str(leaf.dtype), data))
    return found


def same(one, other):
    return jax.tree.structure(one) == jax.tree.structure(other) and bits(one) == bits(other)


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_saved_is_loaded(name, tmp_path):
    pair = pair_of(name)
    vages.save(tmp_path / "a.safetensors", *pair)
    assert same(vages.load(tmp_path / "a.safetensors"), pair)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize(("name", "axes"), [("Bernoulli", 1), ("vectors", 2), ("context, MLP", 1), ("layers", 1)])
def test_several_seeds_are_one_file(name, axes, tmp_path):
    stack = lambda tree: jax.tree.map(lambda x: jnp.stack([x, 2 * x]) if eqx.is_array(x) else x, tree)
    pair = pair_of(name)
    for _ in range(axes):
        pair = stack(pair)
    vages.save(tmp_path / "a.safetensors", *pair)
    assert same(vages.load(tmp_path / "a.safetensors"), pair)


def test_a_new_process_loads_the_same(tmp_path):
    chosen = [name for name in PAIRS if name in ("bfloat16", "images", "mixed", "joint")]
    for i, name in enumerate(chosen):
        vages.save(str(tmp_path / f"{i}.safetensors"), *pair_of(name))
    code = f"""
import jax, numpy, vages
for i in range({len(chosen)}):
    pair = vages.load(f"{tmp_path}/{{i}}.safetensors")
    print([(jax.tree_util.keystr(path), str(x.dtype), numpy.asarray(x).tobytes().hex())
        for path, x in jax.tree_util.tree_leaves_with_path(pair) if hasattr(x, "dtype")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    for name, line in zip(chosen, done.stdout.splitlines(), strict=True):
        leaves = [leaf for leaf in bits(pair_of(name)) if len(leaf) > 2]
        assert line == str([(place, dtype, data.hex()) for place, _, _, dtype, data in leaves])


def energy(params, v, h):
    return jnp.sum(v**2) * params["width"] - jnp.sum(h) * params["shift"]


def own_energy(width=1.0, shift=0.5, v=2, h=3):
    return vages.EnergyModel(energy, {"width": jnp.full((v, v), width), "shift": shift}, v=Real(v), h=Binary(h))


class Own(vages.EBLVM):
    layer: eqx.nn.Linear
    name: str = eqx.field(static=True, default="own")

    @property
    def v(self):
        return Real(2)

    @property
    def h(self):
        return Real(3)

    def features(self, v, context=None):
        return self.layer(v)

    def log_joint(self, features, h):
        return -jnp.sum((features - h) ** 2)


class OwnPosterior(vages.Posterior):
    layer: eqx.nn.Linear

    def __call__(self, model, features, v, context=None):
        return vages.Gaussian(self.layer(v), jnp.zeros(3))


def own(seed=0, size=3):
    return Own(eqx.nn.Linear(2, size, key=jax.random.key(seed)))


def own_posterior(seed=0, size=3):
    return OwnPosterior(eqx.nn.Linear(2, size, key=jax.random.key(seed)))


def saved(tmp_path, *pair):
    vages.save(tmp_path / "a.safetensors", *pair, overwrite=True)
    return tmp_path / "a.safetensors"


def test_an_own_class_is_loaded_into_one_like_it(tmp_path):
    path = saved(tmp_path, own(1))
    assert same(vages.load(path, own(2)), (own(1), None))
    assert same(vages.load(path, (own(2), None)), (own(1), None))
    assert same(vages.load(path, eqx.filter_eval_shape(own)), (own(1), None))
    path = saved(tmp_path, own_energy(2.0), vages.GaussianPosterior.linear(KEY, 2, 3))
    like = own_energy(), vages.GaussianPosterior.linear(jax.random.key(1), 2, 3)
    assert same(vages.load(path, like), (own_energy(2.0), vages.GaussianPosterior.linear(KEY, 2, 3)))
    path = saved(tmp_path, vages.Mixed(own(1), jnp.bfloat16), MixedPosterior(own_posterior(1), jnp.bfloat16))
    found = vages.load(path, (vages.Mixed(own(), jnp.bfloat16), MixedPosterior(own_posterior(), jnp.bfloat16)))
    assert same(found, (vages.Mixed(own(1), jnp.bfloat16), MixedPosterior(own_posterior(1), jnp.bfloat16)))


def renamed_energy(params, v, h):
    return energy(params, v, h)


def test_code_of_another_name_is_taken_from_like(tmp_path):
    like = vages.EnergyModel(renamed_energy, own_energy().params, Real(2), Binary(3))
    found, _ = vages.load(saved(tmp_path, own_energy(2.0)), like)
    assert isinstance(found, vages.EnergyModel)
    assert found.energy is renamed_energy
    assert found.params["width"].tolist() == own_energy(2.0).params["width"].tolist()


def test_every_bit_is_restored(tmp_path):
    with jax.enable_x64(True):
        odd = np.asarray([np.nan, -0.0, np.inf, 1e-310, 1 / 3]).view(np.uint64)
        odd[0] += 5  # a NaN with other bits
        numbers = {str(jnp.dtype(x)): jnp.arange(-2, 4).astype(x) for x in ("int8", "int16", "int32", "int64", "bool")}
        numbers |= {f"u{n}": jnp.arange(250, 256).astype(f"uint{n}") for n in (8, 16, 32, 64)}
        numbers |= {str(jnp.dtype(x)): jnp.arange(6.0).astype(x) / 3 for x in ("bfloat16", "float16", "float32")}
        params = numbers | {
            "float64": jnp.asarray(odd.view(np.float64)),
            "keys": jax.random.split(KEY, (2, 3)),
            "rbg": jax.random.key(3, impl="rbg"),
            "old key": jax.random.PRNGKey(3),
            "empty": jnp.zeros((0, 4)),
            "NumPy": np.arange(6.0)[::2],
            "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "NumPy, narrow": np.asarray(jnp.ones(3, jnp.bfloat16)),
            "scalar": np.float32(0.1),
            "float": 0.1,
            "infinite": -np.inf,
            "nan": float("nan"),
            "int": 2**70,
            "flag": True,
            "none": None,
            "nested": [(jnp.ones(2), {"a": jnp.zeros(())}), jax.nn.elu, "text"],
        }
        model = vages.EnergyModel(energy, params, v=Real(2))
        like = eqx.tree_at(lambda m: m.params["nested"][0][0], model, jnp.zeros(2))
        found, _ = vages.load(saved(tmp_path, model), like)
        assert same(
            eqx.tree_at(lambda m: m.params["nan"], found, 0.0), eqx.tree_at(lambda m: m.params["nan"], model, 0.0)
        )
        assert isinstance(found, vages.EnergyModel)
        assert found.params["NumPy"].flags.writeable
        wide = grbm(dtype=jnp.float64)
        path = saved(tmp_path, wide)
        assert same(vages.load(path), (wide, None))
    with refused(str(path), "jax_enable_x64=False", BadFile):
        vages.load(path)


def test_numbers_in_the_other_order_of_bytes_keep_their_values(tmp_path):
    model = vages.EnergyModel(energy, {"a": np.arange(3, dtype=">f4")}, v=Real(2))
    found, _ = vages.load(saved(tmp_path, model), model)
    assert isinstance(found, vages.EnergyModel)
    assert found.params["a"].dtype == np.float32
    assert found.params["a"].tolist() == [0, 1, 2]


def test_a_numpy_number_in_a_static_field_becomes_pythons(tmp_path):
    with pytest.warns(UserWarning, match="static"):
        posterior = vages.BernoulliPosterior(eqx.nn.Linear(4, 3, key=KEY), np.float64(0.25))
    found = vages.load(saved(tmp_path, grbm(), posterior))[1]
    assert isinstance(found, vages.BernoulliPosterior)
    assert type(found.temperature) is float
    assert found.temperature == 0.25


def test_a_file_is_new_or_replaced_on_demand(tmp_path):
    path = saved(tmp_path, grbm())
    with refused("path", path, FileExistsError):
        vages.save(path, linear_gaussian())
    assert same(vages.load(path), (grbm(), None))
    vages.save(path, linear_gaussian(), overwrite=True)
    assert same(vages.load(path), (linear_gaussian(), None))
    (tmp_path / "link.safetensors").symlink_to(path)
    for overwrite in (False, True):
        with refused(str(tmp_path / "link.safetensors"), "a symbolic link", BadFile):
            vages.save(tmp_path / "link.safetensors", grbm(), overwrite=overwrite)
    with refused("path", "'model'"):
        vages.save(tmp_path / "model", grbm())
    with refused("path", tmp_path / "no", FileNotFoundError):
        vages.save(tmp_path / "no" / "a.safetensors", grbm())
    assert same(vages.load(path), (linear_gaussian(), None))
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path, as_users_have_it):
    path = tmp_path / "a.safetensors"
    twice = {"a/b": jnp.zeros(2), "a": {"b": jnp.ones(2)}}
    with refused("model/params/a/b", "two"):
        vages.save(path, vages.EnergyModel(energy, twice, v=Real(2)))
    with refused("model/params/z", "complex64"):
        vages.save(path, vages.EnergyModel(energy, {"z": jnp.zeros(2, jnp.complex64)}, v=Real(2)))
    with refused("model/weight", "a shape"):
        eqx.filter_jit(lambda model: vages.save(path, model))(grbm())
    with refused("model/weight", "a shape"):
        vages.save(path, eqx.filter_eval_shape(grbm))
    nested = grbm()
    for _ in range(40):
        nested = vages.Mixed(nested, jnp.bfloat16)
    with refused("model", "nesting too deep", BadFile):
        vages.save(path, nested)
    for wrong in ({"model": grbm()}, None, vages.GRBM):
        with pytest.raises(TypeError, match="^model: .*fitted.model"):
            vages.save(path, wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"^posterior: .*fitted\.posterior"):
        vages.save(path, grbm(), grbm())  # pyright: ignore[reportArgumentType]
    assert not list(tmp_path.iterdir())


def test_like_is_asked_for_by_name(tmp_path):
    with refused("like", "none") as caught:
        vages.load(saved(tmp_path, own_energy()))
    assert "EnergyModel.energy is the function energy" in str(caught.value)
    with refused("like", "none") as caught:
        vages.load(saved(tmp_path, own()))
    assert "the model is Own" in str(caught.value)
    with refused("like", "none") as caught:
        vages.load(saved(tmp_path, grbm(), MixedPosterior(own_posterior(), jnp.float16)))
    assert "MixedPosterior.posterior is OwnPosterior" in str(caught.value)
    network = vages.GaussianPosterior(Conditioned(lambda v: (v, v), {"label": 2}))
    with refused("like", "none") as caught:
        vages.load(saved(tmp_path, grbm(), network))
    assert "Conditioned.network is the function " in str(caught.value)


@pytest.mark.parametrize(
    ("like", "place", "got"),
    [
        (lambda: (own(size=4), own_posterior()), "model/layer/weight", "float32[4, 2]"),
        (lambda: (own(), own_posterior(size=4)), "posterior/layer/weight", "float32[4, 2]"),
        (
            lambda: (jax.tree.map(lambda x: x.astype(jnp.float16), own()), own_posterior()),
            "model/layer/weight",
            "float16[3, 2]",
        ),
        (lambda: (grbm(), own_posterior()), "model/layer/weight", "no such array"),
        (lambda: (own(), vages.ExactPosterior()), "posterior/layer/weight", "no such array"),
        (
            lambda: (Own(eqx.nn.Linear(2, 3, use_bias=False, key=KEY)), own_posterior()),
            "model/layer/bias",
            "no such array",
        ),
    ],
)
def test_the_first_difference_of_like_is_named(like, place, got, tmp_path):
    path = saved(tmp_path, own(), own_posterior())
    with refused("like", got) as caught:
        vages.load(path, like())
    assert f" {place}, " in str(caught.value)


def test_what_is_not_an_array_is_compared_too(tmp_path):
    path = saved(tmp_path, own_energy())
    for like, place, got in (
        (own_energy(shift=0.25), "model/params/shift", "0.25"),
        (own_energy(h=4), "model/h", '"Binary(4)"'),
        (
            vages.EnergyModel(energy, own_energy().params, Real(2), Binary(3), features=energy),
            "model/visible_part",
            "the function energy",
        ),
        (
            vages.EnergyModel(energy, {"width": own_energy().params["width"]}, Real(2), Binary(3)),
            "model/params/shift",
            "no such part",
        ),
    ):
        with refused("like") as caught:
            vages.load(path, like)
        assert f"for {place}, as in a.safetensors, got {got}" in str(caught.value)
    path = saved(tmp_path, grbm(), vages.BernoulliPosterior.linear(KEY, 4, 3))
    with refused("like", "0.5") as caught:
        vages.load(path, (grbm(), vages.BernoulliPosterior.linear(KEY, 4, 3, 0.5)))
    assert "0.1 for posterior/temperature" in str(caught.value)
    with refused("like", '"LinearGaussian"') as caught:
        vages.load(path, (linear_gaussian(), vages.BernoulliPosterior.linear(KEY, 4, 3)))


def test_fields_that_were_added_since_take_their_defaults(tmp_path):
    posterior = lambda *temperature: vages.BernoulliPosterior.linear(KEY, 4, 3, *temperature)
    path = saved(tmp_path, grbm(), posterior())
    forge(path, lambda about: drop(about["posterior"]["fields"], "temperature"))
    for like in (None, (grbm(), posterior())):
        assert same(vages.load(path, like), (grbm(), posterior()))
    with refused("like", "0.5") as caught:
        vages.load(path, (grbm(), posterior(0.5)))
    assert "0.1 for posterior/temperature" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"), [("field missing", "no 'log_sigma' at 'model'"), ("field more", "'features'")]
)
def test_the_first_field_that_differs_is_named(name, said, tmp_path):
    path = saved(tmp_path, *pair_of("Bernoulli"))
    forge(path, FORGERIES[name])
    with refused(str(path), said, kind=BadFile):
        vages.load(path)
    with refused("like") as caught:
        vages.load(path, pair_of("Bernoulli"))
    assert f"for model/{'log_sigma' if name == 'field missing' else 'features'}, " in str(caught.value)


def test_everything_that_the_library_builds_has_a_name_in_the_file():
    rooms = (vages.models, vages.posteriors, vages.nets)
    found = {kind for room in rooms for kind in vars(room).values() if isinstance(kind, type)}
    made = {kind.__name__ for kind in found if issubclass(kind, eqx.Module) and not inspect.isabstract(kind)}
    assert made - set(structure._CLASSES) == {"Listed"}  # a distribution


def test_a_posterior_is_in_both_or_in_neither(tmp_path, as_users_have_it):
    alone, both = own(), (own(), own_posterior())
    path = saved(tmp_path, alone)
    with refused("like", "a pair"):
        vages.load(path, both)
    with refused("like", "a model alone"):
        vages.load(saved(tmp_path, *both), alone)
    for wrong in (3, (own(), own_posterior(), None), (own(), own()), (own_posterior(), own())):
        with pytest.raises(TypeError, match="^like: expected .*got "):
            vages.load(path, wrong)


# hostile files


def forge(path, change=lambda about: None, arrays=None):
    """Rewrite the file with a changed description, and possibly with other arrays."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = json.loads(header["__metadata__"]["vages"])
    about = change(about) or about
    kept = safetensors.numpy.load(content)
    kept = {name: np.array(array) for name, array in kept.items()} | (arrays or {})
    kept = {name: array for name, array in kept.items() if array is not None}
    path.write_bytes(safetensors.numpy.save(kept, {"vages": json.dumps(about)}))


def drop(where, key):
    del where[key]


def network(about):
    return about["posterior"]["fields"]["network"]["fields"]


FORGERIES = {
    "class": lambda about: about["model"].update({"class": "os.system"}),
    "class of the module": lambda about: about["model"].update({"class": "Path"}),
    "abstract class": lambda about: about["model"].update({"class": "EBLVM"}),
    "class that is a list": lambda about: about["model"].update({"class": ["GRBM"]}),
    "another class": lambda about: about["model"].update({"class": "DeepEBLVM"}),
    "a posterior for a model": lambda about: about.update(model={"class": "ExactPosterior", "fields": {}}),
    "a model for a posterior": lambda about: about.update(posterior=about["model"]),
    "a number for a model": lambda about: about.update(model=3),
    "no model": lambda about: about.update(model=None),
    "no posterior": lambda about: about.update(posterior=None),
    "function": lambda about: network(about).update(use_bias={"function": "os.system"}),
    "tag": lambda about: network(about).update(use_bias={"call": "exit"}),
    "two tags": lambda about: network(about).update(use_bias={"list": [], "tuple": []}),
    "dtype": lambda about: network(about).update(use_bias={"dtype": "O"}),
    "float": lambda about: network(about).update(use_bias={"float": "1e5"}),
    "field missing": lambda about: drop(about["model"]["fields"], "log_sigma"),
    "field more": lambda about: about["model"]["fields"].update(features=1),
    "field of Python": lambda about: about["model"]["fields"].update(__class__=1),
    "array of another place": lambda about: network(about).update(bias={"array": "model/latent_bias"}),
    "array that is not there": lambda about: network(about).update(bias={"array": "posterior/network/no"}),
    "array for a number": lambda about: network(about).update(out_features={"array": "posterior/network/out_features"}),
    "number for an array": lambda about: network(about).update(weight=1.0),
    "list for an array": lambda about: network(about).update(weight={"list": [1.0]}),
    "no bias": lambda about: network(about).update(bias=None),
    "sizes": lambda about: network(about).update(in_features=5),
    "huge sizes": lambda about: network(about).update(in_features=2**62),
    "text for a size": lambda about: network(about).update(in_features="4"),
    "temperature": lambda about: about["posterior"]["fields"].update(temperature="hot"),
    "kind": lambda about: about["arrays"].update({"model/weight": ["torch", "float32"]}),
    "kind of another form": lambda about: about["arrays"].update({"model/weight": "jax"}),
    "scalar": lambda about: about["arrays"].update({"model/weight": ["scalar", "float32"]}),
    "key": lambda about: about["arrays"].update({"model/weight": ["key", "threefry2x32"]}),
    "dtype of an array": lambda about: about["arrays"].update({"model/weight": ["jax", "int32"]}),
    "array not described": lambda about: drop(about["arrays"], "model/weight"),
    "array described": lambda about: about["arrays"].update(more=["jax", "float32"]),
    "arrays": lambda about: about.update(arrays=[]),
    "nothing": lambda about: {"format": 1},
    "older format": lambda about: about.update(format=0),
    "format": lambda about: about.update(format="1"),
    "deep": lambda about: about.update(model=json.loads('{"list": [' * 40 + "]}" * 40)),
}
OTHER_ARRAYS = {
    "weight": {"model/weight": np.zeros((5, 3), np.float32)},
    "bias": {"model/latent_bias": np.zeros(1, np.float32)},
    "sigma": {"model/log_sigma": np.zeros(3, np.float32)},
    "rank": {"model/weight": np.zeros(4, np.float32)},
    "seeds of one array": {"model/weight": np.zeros((2, 4, 3), np.float32)},
    "no rows": {"model/weight": np.zeros((0, 3), np.float32), "model/visible_bias": np.zeros(0, np.float32)},
    "layer": {"posterior/network/weight": np.zeros((3, 5), np.float32)},
    "dtype": {"model/weight": np.zeros((4, 3), np.float64)},
    "missing": {"model/weight": None},
    "more": {"model/more": np.zeros(1, np.float32)},
}


def test_a_forger_who_changes_nothing_is_not_seen(tmp_path):
    path = saved(tmp_path, *pair_of("Bernoulli"))
    forge(path)
    assert same(vages.load(path), pair_of("Bernoulli"))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_description_is_refused(name, tmp_path, as_users_have_it):
    path = saved(tmp_path, *pair_of("Bernoulli"))
    forge(path, FORGERIES[name])
    with refused(str(path), kind=BadFile):
        vages.load(path)


def places(node):
    """Every (container, key) in a description."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in places(node[key])]


def test_forged_files_raise_nothing_but_one_line(tmp_path):
    """Random values at random places of the description. VAGES_FUZZ=10000 for a longer run."""
    odd = [None, -1, 0, 2**70, 1e300, "x", [], [1], {}, True, {"list": []}, {"tuple": [1, 2]}, {"float": "nan"}]
    odd += [{"function": "jax.nn.elu"}, {"class": "ExactPosterior", "fields": {}}, {"dict": {}}, {"other": "x"}]
    chance, path, refusals = random.Random(0), tmp_path / "a.safetensors", 0

    def change(about):
        where, key = chance.choice(places(about))
        if isinstance(where, dict) and chance.random() < 0.1:
            del where[key]
        else:
            where[key] = json.loads(json.dumps(chance.choice(odd)))

    for turn in range(FUZZ):
        pair = pair_of(["context, Bernoulli", "vectors", "mixed"][turn % 3])
        forge(saved(tmp_path, *pair), change)
        try:
            vages.load(path, pair if chance.random() < 0.3 else None)
        except ValueError as error:
            text, refusals = str(error), refusals + 1
            assert text.splitlines() == [text]
            assert " expected " in text
            assert len(text) < len(str(path)) + 600
    assert refusals > FUZZ / 2


@pytest.mark.parametrize("name", OTHER_ARRAYS)
def test_arrays_that_do_not_fit_are_refused(name, tmp_path):
    path = saved(tmp_path, *pair_of("Bernoulli"))
    forge(path, arrays=OTHER_ARRAYS[name])
    with refused(str(path), kind=BadFile):
        vages.load(path)


def test_networks_that_do_not_fit_are_refused(tmp_path):
    """Sizes that do not match the arrays would make samplers allocate, or loops run, too much."""

    def deep_file():
        return saved(tmp_path, *pair_of("images"))

    def stem(about):
        return about["model"]["fields"]["network"]["fields"]["stem"]["fields"]

    for change in (
        lambda about: about["model"]["fields"]["network"]["fields"].update(in_shape={"tuple": [1, 8, 8 * 10**9]}),
        lambda about: about["model"]["fields"]["network"]["fields"].update(out_size=4),
        lambda about: drop(about["model"]["fields"]["network"]["fields"]["blocks"]["list"], -1),
        lambda about: stem(about).update(kernel_size={"tuple": [10**9, 10**9]}),
        lambda about: stem(about).update(padding={"tuple": [{"tuple": [10**9, 1]}, {"tuple": [1, 1]}]}),
        lambda about: stem(about).update(groups=0),
    ):
        path = deep_file()
        forge(path, change)
        with refused(str(path), kind=BadFile):
            vages.load(path)
    path = deep_file()
    none = {"model/network/stem/weight": np.zeros((0, 1, 10**5, 10**5), np.float32)}
    wide = lambda about: stem(about).update(out_channels=0, kernel_size={"tuple": [10**5, 10**5]})
    forge(path, wide, none | {"model/network/stem/bias": np.zeros((0, 1, 1), np.float32)})
    with refused(str(path), kind=BadFile):
        vages.load(path)


def test_a_context_of_impossible_size_is_refused(tmp_path):
    path = saved(tmp_path, *pair_of("context, MLP"))
    for sizes in ({"tuple": [{"tuple": ["label", 10**12]}]}, {"tuple": [3]}, None):
        forge(path, lambda about, sizes=sizes: about["posterior"]["fields"]["network"]["fields"].update(sizes=sizes))
        with refused(str(path), kind=BadFile):
            vages.load(path)


def test_a_pair_that_does_not_evaluate_is_loaded_by_like_alone(tmp_path, as_users_have_it):
    pair = vages.GRBM(jnp.zeros((4, 3)), jnp.zeros(1), jnp.zeros(3), jnp.zeros(())), vages.ExactPosterior()
    path = saved(tmp_path, *pair)
    with refused(str(path), kind=BadFile):
        vages.load(path)
    assert same(vages.load(path, pair), pair)


def test_texts_of_a_file_stay_on_one_line(tmp_path):
    path = saved(tmp_path, own_energy())
    for text in ("a\nb\x1b[2J", ["x"] * 1000):
        forge(path, lambda about, text=text: about["model"]["fields"].update(energy={"other": text}))
        with refused("like", "none") as caught:
            vages.load(path)
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 500
    forge(path, lambda about: about.update(model={"class": "a\nb", "fields": {"c\x1b": {"other": "d"}}}))
    with refused("like", "none"):
        vages.load(path)
    bad = saved(tmp_path, grbm())
    forge(bad, lambda about: about["arrays"].update({"a\nb": ["jax", "f\n4"]}), {"a\nb": np.zeros(1, np.float32)})
    with refused(str(bad), kind=BadFile):
        vages.load(bad)
    with refused("like", "no such array"):
        forge(bad, lambda about: about["arrays"].update({"a\nb": ["jax", "float32"]}))
        vages.load(bad, grbm())


def test_sizes_and_names_of_a_file_are_told_in_short(tmp_path):
    part = "a\nb" * 100
    path = saved(tmp_path, grbm(), vages.JointPosterior({part: vages.BernoulliPosterior.linear(KEY, 4, 3)}))
    layer = lambda about: about["posterior"]["fields"]["parts"]["dict"][part]["fields"]["network"]["fields"]
    for change in (
        lambda about: layer(about).update(in_features=10**4000),
        lambda about: drop(layer(about), "in_features"),
        lambda about: layer(about).update(in_features={"new": ["x"] * 1000}),
    ):
        forge(path, change)
        with refused(str(path), kind=BadFile) as caught:
            vages.load(path)
        assert len(str(caught.value)) < len(str(path)) + 400
        saved(tmp_path, grbm(), vages.JointPosterior({part: vages.BernoulliPosterior.linear(KEY, 4, 3)}))


def test_a_file_of_a_newer_format_asks_for_an_update(tmp_path):
    path = saved(tmp_path, grbm())
    for number in (2, 10**100):
        forge(path, lambda about, number=number: about.update(format=number, model={"new": 1}, arrays=None))
        with refused(str(path), "format", BadFile) as caught:
            vages.load(path)
        assert "update" in str(caught.value)


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = saved(tmp_path, grbm())
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    foreign = safetensors.numpy.save({"a": np.zeros(2)})
    for content in (
        *(whole[:n] for n in (0, 4, 8, 100, 8 + size, len(whole) - 1)),
        whole + b"\0",
        (2**60).to_bytes(8, "little") + whole[8:],
        whole.replace(b'"shape":[4,3]', b'"shape":[9,9]'),
        whole.replace(b'"F32"', b'"F64"', 1),
        b"\x80\x04K\x01.",  # a pickle
        foreign,
        safetensors.numpy.save({"a": np.zeros(2)}, {"vages": "{"}),
        safetensors.numpy.save({"a": np.zeros(2)}, {"vages": "[]"}),
        safetensors.numpy.save({"a": np.zeros(2)}, {"statistics": "{}"}),
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
    ):
        path.write_bytes(content)
        with refused(str(path), kind=BadFile):
            vages.load(path)
    path.write_bytes(whole)
    assert same(vages.load(path), (grbm(), None))


def test_flags_that_are_neither_true_nor_false_are_refused(tmp_path):
    model = vages.EnergyModel(energy, {"flag": jnp.asarray([True, False])}, v=Real(2))
    path = saved(tmp_path, model)
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with refused(str(path), kind=BadFile):
        vages.load(path, model)


def test_files_that_are_not_there_or_not_files_are_refused(tmp_path):
    path = saved(tmp_path, grbm())
    with refused(str(tmp_path / "b.safetensors"), "none", FileNotFoundError):
        vages.load(tmp_path / "b.safetensors")
    with refused(str(tmp_path / "no" / "b.safetensors"), "no folder", FileNotFoundError):
        vages.load(tmp_path / "no" / "b.safetensors")
    (tmp_path / "link.safetensors").symlink_to(path)
    (tmp_path / "folder.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe.safetensors")
    for name, got in (("link", "a symbolic link"), ("folder", "a folder"), ("pipe", "a pipe")):
        with refused(str(tmp_path / f"{name}.safetensors"), got, BadFile):
            vages.load(tmp_path / f"{name}.safetensors")


def test_a_file_larger_than_the_memory_is_not_read(tmp_path):
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as file:
        file.truncate(2**43)
    with refused(str(path), 2**43, BadFile):
        vages.load(path)


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path, monkeypatch):
    path = saved(tmp_path, grbm())

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        vages.save(path, linear_gaussian(), overwrite=True)
    monkeypatch.undo()
    assert same(vages.load(path), (grbm(), None))
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
