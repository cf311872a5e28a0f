"""Learned posteriors: Bernoulli, one-hot or diagonal Gaussian variables, parameterized by any network.

They read v, and the context if there is one: the network is then called as `network(v, context)`, and one that takes
only v is refused. Custom posteriors may read the features too.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from vages.distributions import Bernoulli, Gaussian, Joint, OneHot
from vages.domains import Product
from vages.models import EBLVM
from vages.nets import ConvEncoder, ResidualMLP
from vages.nets.network import check_size
from vages.posteriors.conditioned import call, reads_context, with_context
from vages.posteriors.posterior import Posterior


class BernoulliPosterior(Posterior):
    """q(h | v) with `network(v)` as logits; samples relaxed at `temperature`, binary at temperature 0."""

    network: Callable[..., Array]
    temperature: float = eqx.field(static=True, default=0.1)

    @staticmethod
    def linear(
        key: PRNGKeyArray,
        v_dim: int,
        h_dim: int,
        temperature: float = 0.1,
        *,
        context: Mapping[str, int] | None = None,
    ) -> "BernoulliPosterior":
        """One fully connected layer, as in the paper's GRBM experiments; `context` as in `GaussianPosterior`."""
        layer = lambda size: eqx.nn.Linear(size, h_dim, key=key)
        return BernoulliPosterior(with_context(layer, v_dim, context), temperature)

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Bernoulli:
        return Bernoulli(_output(self, v, context), self.temperature)


class CategoricalPosterior(Posterior):
    """q(h | v) with `network(v)`, n k numbers, as logits of n choices among k; sampled as in `BernoulliPosterior`."""

    network: Callable[..., Array]
    shape: tuple[int, int] = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.1)

    @staticmethod
    def linear(
        key: PRNGKeyArray,
        v_dim: int,
        n: int,
        k: int,
        temperature: float = 0.1,
        *,
        context: Mapping[str, int] | None = None,
    ) -> "CategoricalPosterior":
        """One fully connected layer; `context` as in `GaussianPosterior`."""
        layer = lambda size: eqx.nn.Linear(size, n * k, key=key)
        return CategoricalPosterior(with_context(layer, v_dim, context), (n, k), temperature)

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> OneHot:
        return OneHot(_output(self, v, context).reshape(self.shape), self.temperature)


class GaussianPosterior(Posterior):
    """q(h | v) with `network(v)` as the pair (mean, log standard deviation).

    If the data have a context, pass the sizes of its entries to `linear` or `mlp`, such as `context={"label": 10}`: the
    number of classes of an integer, which is one-hot encoded, or the number of values of a floating-point entry. The
    entries are concatenated with v.
    """

    network: Callable[..., tuple[Array, Array]]

    @staticmethod
    def linear(
        key: PRNGKeyArray, v_dim: int, h_dim: int, *, context: Mapping[str, int] | None = None
    ) -> "GaussianPosterior":
        """One fully connected layer for the mean and one for the log standard deviation."""
        mean, log_std = jax.random.split(key)
        layers = lambda size: Heads(eqx.nn.Linear(size, h_dim, key=mean), eqx.nn.Linear(size, h_dim, key=log_std))
        return GaussianPosterior(with_context(layers, v_dim, context))

    @staticmethod
    def convolutional(
        key: PRNGKeyArray, shape: tuple[int, int, int], latents: int, *, width: int = 64
    ) -> "GaussianPosterior":
        """A convolutional network for images (channels, height, width), as in the paper's deep experiments."""
        check_size(latents=latents)
        return GaussianPosterior(Halves(ConvEncoder(key, shape, width=width, out=2 * latents)))

    @staticmethod
    def mlp(
        key: PRNGKeyArray,
        shape: int | tuple[int, ...],
        latents: int,
        *,
        width: int,
        depth: int,
        context: Mapping[str, int] | None = None,
    ) -> "GaussianPosterior":
        """A residual network of fully connected layers, for the shapes of `DeepEBLVM.vectors`."""
        check_size(latents=latents)
        network = lambda shape: Halves(ResidualMLP(key, shape, width=width, depth=depth, out=2 * latents))
        return GaussianPosterior(with_context(network, shape, context))

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Gaussian:
        moments: Any = _output(self, v, context)
        if hasattr(moments, "ndim") and (isinstance(model.h, Product) or moments.ndim == len(model.h.shape)):
            raise TypeError(
                f"network: expected the pair (mean, log standard deviation), got one array of shape {moments.shape}; "
                "give it twice the outputs and wrap it in posteriors.Halves"
            )
        return Gaussian(*moments)


class JointPosterior(Posterior):
    """q(h | v) of mixed latents: a posterior for each entry of the dict, independent given v."""

    parts: dict[str, Posterior]

    def __call__(self, model: EBLVM, features: Any, v: Array, context: Any = None) -> Joint:
        known = () if context is None else (context,)
        return Joint({name: part(model, features, v, *known) for name, part in self.parts.items()})


class Heads(eqx.Module):
    """Two networks of the same input, one for the mean and one for the log standard deviation."""

    mean: Callable[..., Array]
    log_std: Callable[..., Array]

    def __call__(self, v: Array, context: Any = None) -> tuple[Array, Array]:
        """Return (mean(v), log_std(v)). The context is passed to networks that take one."""
        return call(self.mean, v, context), call(self.log_std, v, context)


class Halves(eqx.Module):
    """One network whose output is mean and log_std, concatenated."""

    network: Callable[..., Array]

    def __call__(self, v: Array, context: Any = None) -> tuple[Array, Array]:
        """Return (mean(v), log_std(v)). The context is passed if the network takes one."""
        mean, log_std = jnp.split(call(self.network, v, context), 2)
        return mean, log_std


def check_reads_context(posterior: Posterior, name: str = "posterior") -> None:
    """Raise if a network takes only v: q would be the same in every context, and all estimates biased."""
    if isinstance(posterior, JointPosterior):
        for key, part in posterior.parts.items():
            check_reads_context(part, f"{name}.parts[{key!r}]")
        return
    learnt = isinstance(posterior, BernoulliPosterior | CategoricalPosterior | GaussianPosterior)
    if learnt and not any(map(reads_context, _networks(posterior.network))):
        raise TypeError(
            f"{name}: expected {type(posterior).__name__} with a network of (v, context), as the data have a context, "
            "got a network of v alone; build it with context={'label': 10}, say, or wrap the network in "
            "posteriors.Conditioned"
        )


def _networks(network: Any) -> tuple[Any, ...]:
    """Return the networks inside `Heads` and `Halves`."""
    if isinstance(network, Heads):
        return (*_networks(network.mean), *_networks(network.log_std))
    return _networks(network.network) if isinstance(network, Halves) else (network,)


def _output(posterior: Any, v: Array, context: Any) -> Any:
    if context is not None:
        check_reads_context(posterior)
    return call(posterior.network, v, context)
