"""Log-densities of the policies' distributions, as functions of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def gaussian_log_prob(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Log N(actions; mean, diag(exp(log_std)²)), summed over action dimensions: (batch,)."""
    standardised = (actions - mean) * (-log_std).exp()
    halves = torch.addcmul(log_std, standardised, standardised, value=0.5).sum(-1)
    return -LOG_SQRT_2PI * actions.shape[-1] - halves


def tanh_log_det(pre_tanh: Tensor) -> Tensor:
    """log(1 - tanh²(u)) per dimension, exact where the direct form has lost all digits."""
    return 2 * (math.log(2) - pre_tanh - F.softplus(-2 * pre_tanh))


def squashed_gaussian_log_prob(mean: Tensor, log_std: Tensor, pre_tanh: Tensor) -> Tensor:
    """Log-density of tanh(pre_tanh), pre_tanh ~ N(mean, exp(log_std)²), in units of [-1, 1]."""
    return gaussian_log_prob(mean, log_std, pre_tanh) - tanh_log_det(pre_tanh).sum(-1)


def drawn_log_prob(log_std: Tensor, noise: Tensor, pre_tanh: Tensor) -> Tensor:
    """Log-density of tanh(pre_tanh) for a draw pre_tanh = mean + exp(log_std) noise: the mean cancels."""
    halves = torch.addcmul(log_std + tanh_log_det(pre_tanh), noise, noise, value=0.5).sum(-1)
    return -LOG_SQRT_2PI * noise.shape[-1] - halves


def atanh_clipped(actions: Tensor) -> Tensor:
    """The inverse of tanh for logged actions; those at the bounds are taken a little inside."""
    return torch.atanh(actions.clamp(-1 + 1e-5, 1 - 1e-5))
