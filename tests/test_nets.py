"""Networks against NumPy implementations of their formulas: convolutions as sums over windows."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from errors import refused
from small_nets import filled, normal, quick
from truth import relative_error
from vages.models.mixed import cast
from vages.nets import ConvEncoder, Network, Quadratic, Readout, ResidualMLP, ResNet
from vages.nets.patches import convolve_patches
from vages.nets.resnet import Block, average_pool


def count(tree):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def convolve(layer, x, stride=1):
    """Σ over channels and windows, padded with zeros; stride 1 keeps the side lengths."""
    weight, size = np.asarray(layer.weight), layer.weight.shape[-1]
    x = np.pad(x, [(0, 0)] + 2 * [(size // 2,) * 2])
    places = [range(0, side - size + 1, stride) for side in x.shape[1:]]
    window = lambda i, j: np.tensordot(weight, x[:, i : i + size, j : j + size], 3)
    out = np.stack([np.stack([window(i, j) for j in places[1]], -1) for i in places[0]], -2)
    return out if layer.bias is None else out + np.asarray(layer.bias)


def elu(x):
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


def pool(x):
    return sum(x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)) / 4


def apply(linear, x):
    return np.asarray(linear.weight) @ x + np.asarray(linear.bias)


def residual_network(net, x):
    x = convolve(net.stem, x)
    for block in net.blocks:
        change = convolve(block.second, elu(convolve(block.first, elu(x))))
        x = pool(change) + convolve(block.shortcut, pool(x)) if block.down else change + convolve(block.shortcut, x)
    return x.reshape(-1)


def test_resnet(float64):
    net = filled(ResNet, (3, 8, 16), width=2, depth=2, out=5)
    v = normal(1, *net.in_shape)
    last = residual_network(net, np.asarray(v))
    got = quick(net)(v)
    assert got.shape == (net.out_size,) == (5,)
    assert relative_error(got, apply(net.readout.linear, last)) < 1e-13
    trunk = filled(ResNet, (3, 8, 16), width=2, depth=2)
    assert trunk.out_size == len(last) == 8 * 2 * 1 * 2
    assert relative_error(quick(trunk)(v), last) < 1e-13
    assert [(b.first.in_channels, b.second.out_channels, b.down) for b in net.blocks] == [
        (2, 4, True),
        (4, 4, False),
        (4, 8, True),
        (8, 8, False),
        (8, 16, True),
        (16, 16, False),
    ]
    assert all(b.first.bias is None and b.first.out_channels == b.first.in_channels for b in net.blocks)


def test_encoder(float64):
    net = filled(ConvEncoder, (2, 8, 16), width=2, out=6)
    x = np.asarray(normal(1, *net.in_shape))
    got = quick(net)(jnp.asarray(x))
    for layer in net.layers:
        x = convolve(layer, x, stride=2)
        x = np.where(x > 0, x, 0.2 * x)
    assert relative_error(got, apply(net.readout.linear, x.reshape(-1))) < 1e-13


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding"),
    [(3, 3, 2, 1), (1, 3, 1, 1), (8, 3, 2, 1), (2, (2, 4), (1, 3), (0, 2)), (16, 1, 1, 0)],
)
def test_a_convolution_by_patches_is_the_convolution_and_so_are_its_gradients(
    float64, channels, kernel, stride, padding
):
    """Numbers of columns that are multiples of eight, and others; kernels and strides that are not square."""
    layer = filled(lambda key: eqx.nn.Conv2d(channels, 5, kernel, stride, padding, key=key))
    x = normal(1, channels, 7, 10)

    def by_patches(layer, x):
        return jnp.transpose(convolve_patches(layer, jnp.transpose(x, (1, 2, 0))), (2, 0, 1))

    expected, pull = jax.vjp(lambda layer, x: layer(x), layer, x)
    got, pull_patches = jax.vjp(by_patches, layer, x)
    assert relative_error(got, expected) < 1e-13
    back = normal(2, *expected.shape)
    for one, other in zip(jax.tree.leaves(pull_patches(back)), jax.tree.leaves(pull(back)), strict=True):
        assert relative_error(one, other) < 1e-13


@pytest.mark.parametrize("shape", [3, (3,), (1, 2, 3)])
def test_mlp(float64, shape):
    net = filled(ResidualMLP, shape, width=4, depth=3, out=2)
    v = normal(1, *net.in_shape)
    x = apply(net.layers[0], np.asarray(v).reshape(-1))
    for layer in net.layers[1:]:
        x = x + apply(layer, elu(x))
    assert len(net.layers) == 3
    assert relative_error(quick(net)(v), apply(net.readout.linear, elu(x))) < 1e-13
    trunk = filled(ResidualMLP, shape, width=4, depth=3)
    assert relative_error(quick(trunk)(v), x) < 1e-13
    assert isinstance(net, Network)


def test_the_size_of_the_papers_networks():
    """Only shapes are computed; nothing of this size is allocated."""
    size = lambda net, *args, **sizes: count(eqx.filter_eval_shape(net, jax.random.key(0), *args, **sizes))
    assert size(ResNet, (3, 32, 32), width=128, depth=3) == 62_289_920
    assert size(ResNet, (1, 32, 32), width=64, depth=2, out=50) == 9_859_250 - 101 * 4096
    assert size(ConvEncoder, (1, 32, 32), out=100) == 779_364


def test_parameters_start_uniform_on_one_over_the_root_of_the_fan_in():
    make = lambda key: (Block(key, 16, 32, down=True), Readout(key, 400, 50), Quadratic(key, 400))
    block, readout, quadratic = quick(make)(jax.random.key(0, impl="rbg"))
    pairs = [(block.first, 144), (block.second, 144), (block.shortcut, 16), (readout, 400), (quadratic.weight, 400)]
    for layer, fan_in in pairs:
        for leaf in jax.tree.leaves(layer):
            largest = float(np.abs(leaf).max()) * math.sqrt(fan_in)
            assert 0.8 < largest <= 1 + 1e-6
            if leaf.size > 1000:
                assert abs(float(np.var(leaf)) * fan_in - 1 / 3) < 0.05


def test_what_a_network_ends_with_is_summed_in_float32():
    """4097 ones: a result in bfloat16 would be 4096, and a sum in bfloat16 would stop at 256."""
    ones = jnp.ones(4097, jnp.bfloat16)
    readout = jax.tree.map(lambda leaf: jnp.ones_like(leaf, jnp.bfloat16), filled(Readout, 4097, 2))
    out = quick(readout)(ones)
    assert out.dtype == jnp.float32
    np.testing.assert_array_equal(out, 4098)
    head = jax.tree.map(lambda leaf: jnp.ones_like(leaf, jnp.bfloat16), filled(Quadratic, 4097))
    out = quick(head)(ones)
    assert out.dtype == jnp.float32
    assert float(out) == 4098.0**2 + 4098


def test_a_narrow_mlp_runs_on_this_device():
    """XLA on a CPU compiles a bfloat16 product with a float32 result after a hidden layer, but fails to run it."""
    net = cast(filled(ResidualMLP, 8, width=8, depth=1, out=4), jnp.bfloat16)
    out = quick(jax.vmap(net))(jnp.ones((10, 8), jnp.bfloat16))
    assert out.dtype == jnp.float32
    assert np.isfinite(out).all()


def test_quadratic(float64):
    head = filled(Quadratic, 6)
    x = normal(1, 6)
    first, second, third = np.asarray(head.weight)
    b = np.asarray(head.bias)
    expected = (first @ x + b[0]) * (second @ x + b[1]) + third @ x**2 + b[2]
    assert head(x).dtype == jnp.float64
    assert relative_error(head(x), expected) < 1e-13


def test_pooling_is_no_window_reduction():
    x = jax.random.normal(jax.random.key(0), (3, 4, 6))
    np.testing.assert_allclose(average_pool(x), pool(np.asarray(x)), rtol=1e-6)
    assert "reduce_window" not in str(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(average_pool(x) ** 2)))(x))


def test_what_cannot_work_says_so():
    key = jax.random.key(0)
    for shape in ((1, 28, 28), (1, 32, 20)):
        with pytest.raises(ValueError, match=r"^shape: .*\b8, got"):
            ResNet(key, shape, width=2, depth=1)
        with pytest.raises(ValueError, match=r"^shape: .*\b8, got"):
            ConvEncoder(key, shape, out=2)
    with refused("depth", got=0):
        ResNet(key, (1, 8, 8), width=2, depth=0)
    with refused("width", got=0):
        ResidualMLP(key, 2, width=0, depth=1)
    with refused("shape", got=0):
        ResidualMLP(key, (0,), width=2, depth=1)
