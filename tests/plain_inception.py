"""An independent implementation of the FID network in NumPy and float64, layer by layer, without folding."""

import numpy as np


def features(arrays: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """2048 numbers for each of the uint8 images (n, 3, height, width); `arrays` has the names of the weights file."""
    net = _Net(arrays)
    x = (_resize(images.astype(np.float64)) - 128) / 128
    x = net.conv(x, "conv", stride=2, pad=False)
    x = net.conv(x, "conv_1", pad=False)
    x = net.conv(x, "conv_2")
    x = _max(x, 2)
    x = net.conv(x, "conv_3")
    x = net.conv(x, "conv_4", pad=False)
    x = _max(x, 2)
    for block in ("mixed", "mixed_1", "mixed_2"):
        a = net.conv(x, f"{block}.conv")
        b = net.convs(x, f"{block}.tower", 2)
        c = net.convs(x, f"{block}.tower_1", 3)
        d = net.conv(_mean(x), f"{block}.tower_2.conv")
        x = np.concatenate([a, b, c, d], 1)
    a = net.conv(x, "mixed_3.conv", stride=2, pad=False)
    b = net.conv(net.convs(x, "mixed_3.tower", 2), "mixed_3.tower.conv_2", stride=2, pad=False)
    x = np.concatenate([a, b, _max(x, 2)], 1)
    for block in ("mixed_4", "mixed_5", "mixed_6", "mixed_7"):
        a = net.conv(x, f"{block}.conv")
        b = net.convs(x, f"{block}.tower", 3)
        c = net.convs(x, f"{block}.tower_1", 5)
        d = net.conv(_mean(x), f"{block}.tower_2.conv")
        x = np.concatenate([a, b, c, d], 1)
    a = net.conv(net.conv(x, "mixed_8.tower.conv"), "mixed_8.tower.conv_1", stride=2, pad=False)
    b = net.conv(net.convs(x, "mixed_8.tower_1", 3), "mixed_8.tower_1.conv_3", stride=2, pad=False)
    x = np.concatenate([a, b, _max(x, 2)], 1)
    for block, pool in (("mixed_9", _mean), ("mixed_10", lambda x: _max(x, 1))):
        a = net.conv(x, f"{block}.conv")
        b = net.conv(x, f"{block}.tower_conv")
        b = [net.conv(b, f"{block}.tower_mixed_conv"), net.conv(b, f"{block}.tower_mixed_conv_1")]
        c = net.conv(net.conv(x, f"{block}.tower_1_conv"), f"{block}.tower_1_conv_1")
        c = [net.conv(c, f"{block}.tower_1_mixed_conv"), net.conv(c, f"{block}.tower_1_mixed_conv_1")]
        d = net.conv(pool(x), f"{block}.tower_2_conv")
        x = np.concatenate([a, *b, *c, d], 1)
    return x.mean((2, 3))


class _Net:
    def __init__(self, arrays):
        self.arrays = arrays

    def convs(self, x, tower, count):
        for i in range(count):
            x = self.conv(x, f"{tower}.conv_{i}" if i else f"{tower}.conv")
        return x

    def conv(self, x, name, stride=1, pad=True):
        weight, beta, mean, var = (
            self.arrays[f"{name}.{part}"].astype(np.float64) for part in ("weight", "beta", "mean", "var")
        )
        height, width = weight.shape[2:]
        if pad:
            x = np.pad(x, ((0, 0), (0, 0), (height // 2, height // 2), (width // 2, width // 2)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (height, width), (2, 3))[:, :, ::stride, ::stride]
        y = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
        column = lambda z: z[:, None, None]
        return np.maximum((y - column(mean)) / np.sqrt(column(var) + 0.001) + column(beta), 0)


def _windows(x, stride):
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::stride, ::stride]


def _max(x, stride):
    if stride == 1:
        x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return _windows(x, stride).max((4, 5))


def _mean(x):
    total = lambda x: _windows(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 1).sum((4, 5))
    return total(x) / total(np.ones((1, 1, *x.shape[2:])))


def _resize(x):
    """Rows, then columns, each interpolated between its two neighbors."""
    for axis in (2, 3):
        size = x.shape[axis]
        at = np.arange(299) * size / 299
        low = np.floor(at).astype(int)
        part = (at - low).reshape(-1, *[1] * (3 - axis))
        x = np.take(x, low, axis) * (1 - part) + np.take(x, np.minimum(low + 1, size - 1), axis) * part
    return x
