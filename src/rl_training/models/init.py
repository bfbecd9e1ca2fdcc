"""Initial weights and biases."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Init:
    """Initial weights and biases; the default is PyTorch's, U(±1/√fan_in) for both."""

    orthogonal: bool = False  # gain √2 and zero biases, as in the code of IQL
    xavier: bool = False  # U(±√(6 / (in + out))) and zero biases, as in the code of REDQ and RLPD
    hidden_bias: float | None = None  # a constant, as in EDAC and ReBRAC
    last_bound: float | None = None  # last layer U(±bound), likewise

    def fill_(self, weight: Tensor, bias: Tensor, *, fan_in: int, last: bool) -> None:
        """Fill in place; an ensemble's tensors have the member axis first."""
        bound = 1 / math.sqrt(fan_in)
        if last and self.last_bound is not None:
            bound = self.last_bound
        nn.init.uniform_(weight, -bound, bound)
        nn.init.uniform_(bias, -bound, bound)
        if self.xavier:
            fan_out = weight[0].numel() // fan_in if weight.ndim == 3 else weight.shape[0]
            bound = math.sqrt(6 / (fan_in + fan_out))
            nn.init.uniform_(weight, -bound, bound)
            nn.init.zeros_(bias)
        if self.orthogonal:
            for matrix in weight if weight.ndim == 3 else (weight,):
                nn.init.orthogonal_(matrix, math.sqrt(2))
            nn.init.zeros_(bias)
        if self.hidden_bias is not None and not last:
            nn.init.constant_(bias, self.hidden_bias)


DEFAULT_INIT = Init()
