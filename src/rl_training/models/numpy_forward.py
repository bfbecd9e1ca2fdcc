"""A network on arrays that share its weights' memory: always up to date, at no cost per update."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from rl_training.models.networks import MLP

_ZERO = np.zeros((), np.float32)  # an int would be converted at every call


class LiveMLP:
    """What collecting acts with: an `MLP` in CPU memory, read as it is at each call."""

    def __init__(self, net: MLP) -> None:
        *self._hidden, self._last = [
            (layer.weight.detach().numpy().T, layer.bias.detach().numpy())
            for layer in net.layers
            if isinstance(layer, nn.Linear)
        ]

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Outputs (batch, out) of inputs (batch, in)."""
        if len(x) == 1:  # a matrix times a vector costs less than times a matrix of one row
            return self._forward(x[0])[None]
        return self._forward(x)

    def _forward(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        for weight, bias in self._hidden:
            x = x.dot(weight)
            x += bias
            np.maximum(x, _ZERO, out=x)
        weight, bias = self._last
        x = x.dot(weight)
        x += bias
        return x

    def __deepcopy__(self, memo: Any) -> None:
        """A copied network has weights of its own, and makes its own view of them."""
        return


def live(net: MLP) -> LiveMLP:
    """The network's one view, made at the first call."""
    view: Any = net.__dict__.get("_live")
    if view is None:
        view = net._live = LiveMLP(net)  # type: ignore[assignment]
    return view
