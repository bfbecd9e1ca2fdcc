"""The passes of an ensemble at several actions in each state.

What the first layer makes of the states is the same for all actions in them, so it is computed once
and takes the place of the bias. Back through it go the sums over the actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models.layout import Layout
from rl_training.models.passes import (
    CHUNK,
    Hidden,
    Into,
    Net,
    backward_chunk,
    forward_chunk,
    give_back,
)
from rl_training.models.pool import POOL

LEAST = 2**16  # numbers in an activation of all states from which that outweighs more calls


def pays(layout: Layout, obs: Tensor, actions: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether these passes serve, and cost less than those with the states repeated."""
    if not layout.ensemble or layout.layers == 1 or layout.norm != "none" or actions.ndim != 3:
        return False
    members, _, width = parameters[0].shape
    rows = obs.shape[0]
    return rows <= CHUNK and members * rows * width >= LEAST


def forward(
    layout: Layout,
    obs: Tensor,
    actions: Tensor,
    parameters: Sequence[Tensor],
    kept: list[Hidden] | None = None,
) -> Tensor:
    """Outputs (members, samples, batch) or (members, samples, batch, out).

    `kept` gets what `backward` needs of each sample. Call it without gradients enabled.
    """
    net = Net(*layout.by_kind(parameters))
    of_states, of_actions = _first_weights(net, obs)
    members, _, width = of_states.shape
    states = POOL.take((members, obs.shape[0], width), obs.dtype)
    torch.baddbmm(net.biases[0], obs.expand(members, *obs.shape), of_states, out=states)
    own = Net([of_actions, *net.weights[1:]], [states, *net.biases[1:]], (), ())
    outputs = [forward_chunk(layout, each, own, kept) for each in actions.unbind()]
    POOL.give(states)
    return torch.stack(outputs, 1)


def backward(
    layout: Layout,
    obs: Tensor,
    actions: Tensor,
    parameters: Sequence[Tensor],
    kept: Sequence[Hidden],
    gradient: Tensor,
) -> list[Tensor]:
    """Gradients in the parameters, in memory of the pool."""
    found = [POOL.take(value.shape, value.dtype) for value in parameters]
    net, place = Net(*layout.by_kind(parameters)), Net(*layout.by_kind(found))
    _, of_actions = _first_weights(net, obs)
    into_states, into_actions = _first_weights(place, obs)
    members, _, width = of_actions.shape
    total = POOL.take((members, obs.shape[0], width), obs.dtype)
    own = Net([of_actions, *net.weights[1:]], net.biases, (), ())
    own_place = Net([into_actions, *place.weights[1:]], [total, *place.biases[1:]], (), ())
    share = layout.layers - 1
    for n, (each, slope) in enumerate(zip(actions.unbind(), gradient.unbind(1), strict=True)):
        of_each, into = kept[n * share : (n + 1) * share], Into(own_place, fresh=n == 0)
        backward_chunk(layout, each, own, of_each, slope, False, into)
    give_back(kept)
    torch.bmm(obs.t().expand(members, -1, -1), total, out=into_states)
    torch.sum(total, 1, True, out=place.biases[0])
    POOL.give(total)
    return found


def _first_weights(net: Net, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Of the states, and of the actions."""
    weight, width = net.weights[0], obs.shape[1]
    return weight.narrow(1, 0, width), weight.narrow(1, width, weight.shape[1] - width)
