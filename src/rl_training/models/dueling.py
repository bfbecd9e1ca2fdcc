"""The dueling network of DQN. Wang et al. 2016."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor, nn

from rl_training.models.mlp import MLP
from rl_training.models.numpy_forward import Array, NumpyFunction


class DuelingMLP(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a A(s, a): two streams over shared layers."""

    def __init__(self, obs_dim: int, hidden_sizes: Sequence[int], num_actions: int) -> None:
        super().__init__()
        *shared, width = hidden_sizes
        self.trunk = MLP(obs_dim, shared[:-1], shared[-1]) if shared else None
        inputs = shared[-1] if shared else obs_dim
        self.value = MLP(inputs, (width,), 1)
        self.advantage = MLP(inputs, (width,), num_actions)

    def forward(self, obs: Tensor) -> Tensor:
        """Values of every choice, (batch, num_actions)."""
        features = obs if self.trunk is None else self.trunk(obs).relu()
        advantages = self.advantage(features)
        return self.value(features) + advantages - advantages.mean(-1, keepdim=True)

    def as_numpy(self, forward: Callable[[MLP], NumpyFunction]) -> NumpyFunction:
        """Return the same function on arrays; `forward` gives that of each perceptron."""
        trunk = None if self.trunk is None else forward(self.trunk)
        value, advantage = forward(self.value), forward(self.advantage)

        def values(obs: Array) -> Array:
            features = obs if trunk is None else np.maximum(trunk(obs), np.float32(0))
            advantages = advantage(features)
            return value(features) + advantages - advantages.mean(-1, keepdims=True)

        return values
