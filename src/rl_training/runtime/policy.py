"""A trained policy in memory: normaliser, actor and action scaling as one function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rl_training.algorithms.base import Algorithm
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.envs.spaces import ActionScaler
from rl_training.models.numpy_forward import NumpyFunction
from rl_training.spec import flat_goals


class Policy:
    """Observations in, actions in the environment's units out.

    One observation takes the numpy path where the actor offers it, at a tenth of torch's overhead.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        normalizer: ObservationNormalizer | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.algorithm = algorithm
        self.spec = algorithm.spec
        self.normalizer = normalizer
        self._scaler = ActionScaler(self.spec)
        self._obs_dim = self.spec.obs_dim
        self._generator = torch.Generator(algorithm.device)
        self._generator.manual_seed(seed)
        self._act: NumpyFunction | None = None
        self._act_made_at = -1
        if normalizer is not None:
            self._mean = normalizer.mean.cpu().numpy().astype(np.float32)
            self._inverse_std = (1 / normalizer.std).cpu().numpy().astype(np.float32)

    def predict(
        self, obs: ArrayLike | Mapping[str, Any], *, deterministic: bool = True
    ) -> NDArray[Any]:
        """The action for one observation, or the actions for a batch of them.

        Goal observations may be what the environment gives, or its parts side by side.
        """
        if isinstance(obs, Mapping):
            obs = flat_goals(obs)
        if isinstance(obs, torch.Tensor):
            obs = obs.detach().cpu()
        array = np.asarray(obs, dtype=np.float32)
        self._check(array)
        if self.normalizer is not None:
            array = (array - self._mean) * self._inverse_std
        if deterministic:
            if self._act_made_at != self.algorithm.update_count:
                self.refresh()
            if self._act is not None:
                return self._scaler.to_env(self._act(array))
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

    def _check(self, array: NDArray[np.float32]) -> None:
        if array.ndim not in (1, 2) or array.shape[-1] != self._obs_dim:
            raise ValueError(
                f"the policy takes observations of {self._obs_dim} numbers, one (shape "
                f"({self._obs_dim},)) or a batch; got shape {array.shape}"
            )
        # the sum of squares is finite only if every entry is, at a fifth of isfinite().all()
        if array.ndim == 1 and math.isfinite(array.dot(array)):
            return
        if not np.isfinite(array).all():
            raise ValueError("the observation has NaN or infinite entries")
