"""Networks of several seeds in one loss, by a `vmap` over the seeds.

To the loss every tensor looks like that of one seed. Where it evaluates a network, this looks behind
and evaluates that of all seeds by hand; what the loss makes of the outputs is left to vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack as outside_vmap

from rl_training.models.layout import Layout, layer_by_layer
from rl_training.models.nodes import by_hand, relay_by_hand, stacked

__all__ = ["Stack", "outside_vmap"]


class Stack:
    """Runs a function of one seed for several."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self._level = 0  # of vmap

    def run(self, function: Callable[..., dict[str, Tensor]], *stacks: Any) -> dict[str, Tensor]:
        """What the function gives, with the seed axis first, for arguments that have it, too."""

        def of_one_seed(*arguments: Any) -> dict[str, Tensor]:
            self._level = _functorch.maybe_current_level() or 0
            return function(*arguments)

        with stacked(self):
            return torch.func.vmap(of_one_seed)(*stacks)

    def shown(self, values: Tensor) -> Tensor:
        """A tensor (seeds, ...) as the function sees it."""
        return _functorch._add_batch_dim(values, 0, self._level)

    def of_all(self, value: Tensor) -> Tensor:
        """What the function sees as a tensor (seeds, ...)."""
        if not _functorch.is_batchedtensor(value):
            return value.expand(self.seeds, *value.shape)
        values, axis = _functorch.get_unwrapped(value), _functorch.maybe_get_bdim(value)
        return values if axis == 0 else values.movedim(axis, 0)

    def evaluate(self, layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        if not self._usual(x):
            return layer_by_layer(layout, x, parameters)
        inputs, own = self.of_all(x), [self.of_all(value) for value in parameters]
        with outside_vmap():
            output = by_hand(layout, inputs, own)
        return self.shown(output)

    def relay_member(
        self, layout: Layout, index: int, x: Tensor, parameters: Sequence[Tensor]
    ) -> Tensor | None:
        if not self._usual(x):
            return None
        inputs, own = self.of_all(x), [self.of_all(value) for value in parameters]
        with outside_vmap():
            output = relay_by_hand(layout, index, inputs, own)
        return None if output is None else self.shown(output)

    def _usual(self, x: Tensor) -> bool:
        """Whether there is no further transform, and the passes by hand serve."""
        return x.ndim == 2 and x.is_cpu and _functorch.maybe_current_level() == self._level
