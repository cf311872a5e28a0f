"""The protocol of networks, functions of one example of a known shape, and checks of shapes and sizes."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array


@runtime_checkable
class Network(Protocol):
    """A function from one example of shape `in_shape` to a vector of `out_size` numbers."""

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        ...

    @property
    def out_size(self) -> int:
        """Length of the result."""
        ...

    def __call__(self, v: Array) -> Array:
        """The result for one example."""
        ...


def check_image_shape(shape: tuple[int, ...]) -> None:
    """Raise unless the shape is (channels, height, width) with sides divisible by 8."""
    if len(shape) != 3 or min(shape) < 1 or shape[1] % 8 or shape[2] % 8:
        raise ValueError(
            f"shape: expected (channels, height, width) with height and width divisible by 8, got {shape}; "
            "pad or resize the images"
        )


def check_size(**sizes: int) -> None:
    """Raise unless each named size is at least 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}; give a larger one")
