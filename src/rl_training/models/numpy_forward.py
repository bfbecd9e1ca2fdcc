"""Perceptrons on NumPy arrays: a tenth of PyTorch's overhead for one observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.models.mlp import MLP

Array = NDArray[np.float32]
NumpyFunction = Callable[[Array], NDArray[Any]]


def numpy_mlp(net: MLP, *, copies: bool) -> NumpyFunction:
    """Return an `MLP` as a function of arrays (in,) or (batch, in).

    Views of the weights are always up to date, at no cost per update. Copies, in PyTorch's aligned
    memory and with rows in order, give the same bits in every process.
    """
    layers = [layer for layer in net.layers if isinstance(layer, nn.Linear)]
    *hidden, (last_weight, last_bias) = [
        (_copied(layer.weight.t()), _copied(layer.bias))
        if copies
        else (layer.weight.detach().numpy().T, layer.bias.detach().numpy())
        for layer in layers
    ]
    zero = np.zeros((), np.float32)  # an int would be converted at every call

    def forward(x: Array) -> Array:
        for weight, bias in hidden:
            x = x.dot(weight)  # at half the overhead of @
            x += bias
            np.maximum(x, zero, out=x)
        x = x.dot(last_weight)
        x += last_bias
        return x

    return forward


def _copied(value: Tensor) -> Array:
    return value.detach().cpu().clone(memory_format=torch.contiguous_format).numpy()


class _Live:
    """A function of rows (batch, in) on views of a network's weights."""

    def __init__(self, net: MLP) -> None:
        self._forward = numpy_mlp(net, copies=False)

    def __call__(self, x: Array) -> Array:
        # a vector costs less than a matrix of one row
        return self._forward(x[0])[None] if len(x) == 1 else self._forward(x)

    def __reduce__(self) -> Any:
        """Copy and pickle nothing: a copied network makes views of its own weights."""
        return type(None), ()


def live(net: MLP) -> NumpyFunction:
    """Return the network as a function of rows that follows its weights, made at the first call."""
    function: Any = net.__dict__.get("_live")
    if function is None:
        function = net._live = _Live(net)  # type: ignore[assignment]
    return function
