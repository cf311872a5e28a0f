"""The deep EBLVM: a network of v, coupled to h by a scalar head."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vages.domains import Real
from vages.models.eblvm import EBLVM
from vages.nets import Network, ResidualMLP, ResNet
from vages.nets.network import check_size


class DeepEBLVM(EBLVM):
    """E(v, h) = Σ_j ELU(head([f + h, h]))_j² with f = network(v), of the same length as h (Eq. 21).

    The network, nearly all of the cost, computes the model's `features`. Only the head depends on h.
    """

    network: Network
    head: eqx.nn.Linear

    def __check_init__(self):
        if self.head.in_features != 2 * self.network.out_size:
            raise ValueError(
                f"head: expected {2 * self.network.out_size} inputs, twice the outputs of the network, "
                f"got {self.head.in_features}; make them agree"
            )

    @staticmethod
    def images(
        key: PRNGKeyArray,
        shape: tuple[int, int, int],
        *,
        width: int,
        depth: int,
        latents: int,
        head_width: int | None = None,
    ) -> "DeepEBLVM":
        """Build the model with a residual network of images (channels, height, width), with sides divisible by 8.

        `head_width` is by default half the size of the network's last layer, as in the paper's experiments.
        """
        check_size(latents=latents, head_width=1 if head_width is None else head_width)
        network, head = jax.random.split(key)
        net = ResNet(network, shape, width=width, depth=depth, out=latents)
        size = 4 * width * (shape[1] // 8) * (shape[2] // 8) if head_width is None else head_width
        return DeepEBLVM(net, eqx.nn.Linear(2 * latents, size, key=head))

    @staticmethod
    def vectors(
        key: PRNGKeyArray, shape: int | tuple[int, ...], *, width: int, depth: int, latents: int, head_width: int
    ) -> "DeepEBLVM":
        """Build the model with a residual MLP, for vectors, or for arrays of any shape, which it flattens."""
        check_size(latents=latents, head_width=head_width)
        network, head = jax.random.split(key)
        net = ResidualMLP(network, shape, width=width, depth=depth, out=latents)
        return DeepEBLVM(net, eqx.nn.Linear(2 * latents, head_width, key=head))

    @property
    def v(self) -> Real:
        return Real(*self.network.in_shape)

    @property
    def h(self) -> Real:
        return Real(self.network.out_size)

    def features(self, v: Array) -> Float[Array, "h"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.network(v)

    def log_joint(self, features: Float[Array, "h"], h: Array) -> Float[Array, ""]:
        # W [f + h, h] = W₁ f + (W₁ + W₂) h, so that W₁ f is computed once for many h.
        assert self.head.bias is not None
        first, second = jnp.split(self.head.weight, 2, axis=1)
        return -jnp.sum(jax.nn.elu(first @ features + (first + second) @ h + self.head.bias) ** 2)
