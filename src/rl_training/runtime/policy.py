"""A policy: normaliser, actor and action scaling as one function of observations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.envs.spaces import ActionScaler
from rl_training.models.numpy_forward import NumpyFunction
from rl_training.spec import flat_goals, unit_scale


class Policy(nn.Module):
    """Observations in, actions in the environment's units out.

    Called on tensors it is a plain module, for whoever exports it. `predict` takes what people and
    environments give, and acts on arrays where the actor can, at a tenth of PyTorch's overhead.
    """

    low: Tensor
    high: Tensor
    action_center: Tensor
    action_half: Tensor

    def __init__(
        self,
        algorithm: Algorithm[Any],
        normalizer: ObservationNormalizer | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.algorithm = algorithm
        self.spec = algorithm.spec
        self.normalizer = normalizer
        self.register_buffer("low", torch.tensor(self.spec.action_low))
        self.register_buffer("high", torch.tensor(self.spec.action_high))
        center, half, _ = unit_scale(self.spec.action_low, self.spec.action_high)
        self.register_buffer("action_center", torch.from_numpy(center), persistent=False)
        self.register_buffer("action_half", torch.from_numpy(half), persistent=False)
        self.to(algorithm.device)
        self._learner = (algorithm,)  # past nn.Module, whose look-ups cost as much as a small layer
        self._scaler = ActionScaler(self.spec)
        self._obs_dim = self.spec.obs_dim
        self._normalize = None if normalizer is None else normalizer.as_numpy()
        self._generator = torch.Generator(algorithm.device)
        self._generator.manual_seed(seed)
        self._act: NumpyFunction | None = None
        self._act_made_at = -1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_normalize": None, "_act": None, "_act_made_at": -1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._normalize = None if self.normalizer is None else self.normalizer.as_numpy()

    def forward(self, obs: Tensor) -> Tensor:
        """Deterministic actions for observations (batch, obs_dim)."""
        actions = self.algorithm.act(obs if self.normalizer is None else self.normalizer(obs))
        if self.spec.action_kind == "discrete":
            return actions + self.spec.action_start
        return torch.clamp(actions * self.action_half + self.action_center, self.low, self.high)

    def predict(
        self, obs: ArrayLike | Mapping[str, Any], *, deterministic: bool = True
    ) -> NDArray[Any]:
        """Return the action for one observation, or the actions for a batch of them.

        Goal observations may be what the environment gives, or its parts side by side.
        """
        try:
            if isinstance(obs, Mapping):
                array = self._flat(obs)
            else:
                array = np.asarray(_off_graph(obs), dtype=np.float32)
        except OverflowError:
            raise ValueError("the observation has a number that is too large") from None
        self._check(array)
        if self._normalize is not None:
            array = self._normalize(array)
        if deterministic:
            if self._act_made_at != self._learner[0].update_count:
                self.refresh()
            act = self._act
            if act is not None:
                return self._scaler.to_env(act(array))
        return self._scaler.to_env(self._torch_action(array, deterministic))

    def reseed(self, seed: int) -> None:
        """Start the draws of `deterministic=False` anew, so that an episode can be repeated."""
        self._generator.manual_seed(seed)

    def refresh(self) -> None:
        """Take the weights as they are now; `predict` does so by itself after an update."""
        self._act = self.algorithm.numpy_policy()
        self._act_made_at = self.algorithm.update_count

    def _torch_action(self, array: NDArray[np.float32], deterministic: bool) -> NDArray[Any]:
        batch = torch.from_numpy(np.atleast_2d(array)).to(self.algorithm.device)
        action = self.algorithm.act(batch, explore=not deterministic, generator=self._generator)
        result: NDArray[Any] = action.cpu().numpy()
        return result if array.ndim == 2 else result[0]

    def _flat(self, obs: Mapping[str, Any]) -> NDArray[np.float32]:
        """Lay the parts of a goal observation side by side, if each is as wide as in training."""
        parts = {key: _off_graph(value) for key, value in obs.items()}
        flat = flat_goals(parts, achieved=self.spec.sees_achieved_goal)
        width = np.shape(parts["desired_goal"])[-1]
        if self.spec.goal_dim not in (0, width):  # 0 if the problem came from a log
            raise ValueError(
                f"the policy takes goals of {self.spec.goal_dim} numbers; desired_goal has {width}"
            )
        return flat

    def _check(self, array: NDArray[np.float32]) -> None:
        if array.ndim not in (1, 2) or array.shape[-1] != self._obs_dim:
            raise ValueError(
                f"the policy takes observations of {self.spec.obs_dim} numbers, one (shape "
                f"({self.spec.obs_dim},)) or a batch; got shape {array.shape}"
            )
        # the sum of squares is finite only if every entry is, at a fifth of isfinite().all()
        if array.ndim == 1 and math.isfinite(array.dot(array)):
            return
        if not np.isfinite(array).all():
            raise ValueError("the observation has NaN or infinite entries")


def _off_graph(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value
