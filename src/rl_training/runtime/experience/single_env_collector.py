"""Collection from a single environment, without the overhead of a vector of one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from rl_training.config import RunError
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.errors import StepAbandoned
from rl_training.runtime.experience.collector import Act, Collector
from rl_training.spec import ProblemSpec


def collector_for(
    envs: VectorEnv[Any, Any, Any], spec: ProblemSpec, buffer: ReplayBuffer, env_id: str
) -> Collector:
    """Return the fastest collector that can step these environments."""
    alone = isinstance(envs, SyncVectorEnv) and envs.num_envs == 1
    if alone and envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
        return SingleCollector(envs, spec, buffer, env_id)
    return Collector(envs, spec, buffer, env_id)


class SingleCollector(Collector):
    """Equivalent of `Collector` for one environment with same-step autoreset, bit for bit."""

    envs: SyncVectorEnv

    def __init__(
        self, envs: VectorEnv[Any, Any, Any], spec: ProblemSpec, buffer: ReplayBuffer, env_id: str
    ) -> None:
        super().__init__(envs, spec, buffer, env_id)
        self._env = self.envs.envs[0]
        self._ended = np.ones(1, np.bool_)
        # the row's columns, as views that are written through
        layout = buffer.layout
        self._row = row = self._rows[0]
        self._row_obs, self._row_actions = row[layout.obs], row[layout.actions]
        self._row_next, self._row_achieved = row[layout.next_obs], row[layout.achieved_apart]
        self._row_rest = row[layout.reward : layout.truncation + 1]

    def step(self, act: Act) -> int:
        """Step the environment once; that makes one transition."""
        try:
            obs = self.obs
            actions = self._plan(act, obs if self._width == obs.shape[1] else obs[:, : self._width])
            env_action = self._scaler.to_env(actions)[0]
            with self._naming, self.guard:
                after, gained, terminated, truncated, _ = self._env.step(env_action)
                reward, ended = float(gained), bool(terminated or truncated)
                last = self._observation(after)
                following = self._observation(self._env.reset()[0]) if ended else last
            if ended:
                self._refuse_bad_start(following)
        except StepAbandoned as abandoned:
            return self._abandon(abandoned)
        except RunError as error:
            raise self._failure(error) from error.__cause__
        self._row_obs[:] = obs[0, : self._width]
        self._row_actions[:] = actions[0]
        self._row_next[:] = last[0, : self._width]
        if self._row_achieved.size:
            self._row_achieved[:] = last[0, self._width :]
        self._row_rest[:] = reward, bool(terminated), bool(truncated and not terminated)
        # finite only if every entry is and none is huge, at a third of the cost of a sum
        if not math.isfinite(self._row.dot(self._row)):
            self._refuse_nonfinite(self._rows, self._everyone)
        self.buffer.add_rows(self._rows, self._everyone)
        self._planned = None
        self.episodes.returns[0] += reward
        self.episodes.lengths[0] += 1
        self._actions[0].append(env_action)
        self._obs = following
        if ended:
            self._end_episodes(self._ended, self._everyone)
        return 1

    def _observation(self, value: Any) -> NDArray[np.float32]:
        """Copy an observation, because the environment may overwrite it; (1, width)."""
        return np.array(value, np.float32)[None]
