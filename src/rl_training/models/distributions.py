"""Log-densities of the policies' distributions, as functions of tensors."""

from __future__ import annotations

import math

from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def gaussian_log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Log N(actions; mean, diag(exp(log_std)²)), summed over action dimensions: (batch,)."""
    standardised = (actions - mean) * (-log_std).exp()
    return (-0.5 * standardised.square() - log_std - LOG_SQRT_2PI).sum(-1)
