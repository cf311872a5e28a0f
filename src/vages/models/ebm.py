"""A plain energy-based model: an EBLVM with empty h, so that the same code trains and samples it."""

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from vages.domains import Empty, Real
from vages.models.eblvm import EBLVM
from vages.nets import Network, Quadratic, ResidualMLP, ResNet


class EBM(EBLVM):
    """E(v) = head(ELU(network(v))) with a quadratic head. All of it is computed by `features`."""

    network: Network
    head: Quadratic

    @staticmethod
    def images(key: PRNGKeyArray, shape: tuple[int, int, int], *, width: int, depth: int) -> "EBM":
        """Build the model with the residual network of `DeepEBLVM.images`."""
        network, head = jax.random.split(key)
        net = ResNet(network, shape, width=width, depth=depth)
        return EBM(net, Quadratic(head, net.out_size))

    @staticmethod
    def vectors(key: PRNGKeyArray, shape: int | tuple[int, ...], *, width: int, depth: int) -> "EBM":
        """Build the model with the network of `DeepEBLVM.vectors`."""
        network, head = jax.random.split(key)
        net = ResidualMLP(network, shape, width=width, depth=depth)
        return EBM(net, Quadratic(head, net.out_size))

    @property
    def v(self) -> Real:
        return Real(*self.network.in_shape)

    @property
    def h(self) -> Empty:
        return Empty()

    def features(self, v: Array) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.head(jax.nn.elu(self.network(v)))

    def log_joint(self, features: Float[Array, ""], h: Array) -> Float[Array, ""]:
        return -features
