"""Collection of transitions from vector environments, under every autoreset mode."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from rl_training.config import RunError
from rl_training.data.replay_buffer import ReplayBuffer, Rows
from rl_training.envs.errors import StepAbandoned, naming_the_env
from rl_training.envs.spaces import ActionScaler
from rl_training.runtime.experience.episodes import Episodes
from rl_training.runtime.loop.saved_values import whole
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")
Observations = NDArray[np.float32]
Act = Callable[[Observations], NDArray[Any]]
# steps of a running episode that a resume can repeat; a longer one starts anew, or an endless episode
# would make every checkpoint larger and every resume slower
MAX_REPEATED = 100_000


class CollectError(RunError):
    """Failure of an environment while collecting; the replay before it is intact."""


class PolicyError(RunError):
    """Action of the policy that is not finite: its networks have diverged."""


class Collector:
    """Steps the environments and writes transitions, with true final observations, into a buffer.

    To load `state` again, the environments must be wrapped in `SeededEpisodes`.
    """

    def __init__(
        self, envs: VectorEnv[Any, Any, Any], spec: ProblemSpec, buffer: ReplayBuffer, env_id: str
    ) -> None:
        self.envs, self.buffer, self.env_id = envs, buffer, env_id
        self.num_envs = envs.num_envs
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._naming = naming_the_env(env_id)
        self._scaler = ActionScaler(spec)
        self._width = spec.obs_dim  # a policy that does not see achieved goals has them after this
        self._everyone = np.arange(self.num_envs)
        self._rows = buffer.new_rows(self.num_envs)
        self._resetting = np.zeros(self.num_envs, np.bool_)  # NEXT_STEP: this step is no transition
        self._obs: Observations | None = None
        self.episodes = Episodes(np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64))
        # number and actions of every running episode, from which a resume repeats it
        self._numbers = [0] * self.num_envs
        self._actions: list[deque[NDArray[Any]]] = [
            deque(maxlen=MAX_REPEATED) for _ in range(self.num_envs)
        ]
        # drawn, but not taken because an environment failed; the next step takes them
        self._planned: NDArray[Any] | None = None
        self.guard: AbstractContextManager[Any] = nullcontext()  # around waiting for environments

    @property
    def obs(self) -> Observations:
        """Current observation of each environment."""
        if self._obs is None:
            with self._naming, self.guard:
                first = np.array(self.envs.reset()[0], np.float32)
            self._refuse_bad_start(first)
            self._obs = first
        return self._obs

    def step(self, act: Act) -> int:
        """Step every environment once; return how many transitions that made.

        0 if a signal ended the wait for an environment. After that, and after an error, the
        actions that were drawn are those of the next step, so that a resume repeats this one.
        """
        try:
            obs = self.obs[:, : self._width]
            actions = self._plan(act, obs)
            env_actions = self._scaler.to_env(actions)
            with self._naming, self.guard:
                after, rewards, terminated, truncated, infos = self.envs.step(env_actions)
        except StepAbandoned as abandoned:
            return self._abandon(abandoned)
        except RunError as error:
            raise self._failure(error) from error.__cause__
        ended = terminated | truncated
        some_ended = bool(ended.any())
        following = np.array(after, np.float32)
        begun = ended if self.mode is AutoresetMode.SAME_STEP else self._resetting
        if begun.any():
            self._refuse_bad_start(following[begun])
        last = following
        if some_ended and self.mode is AutoresetMode.SAME_STEP:
            last = following.copy()
            for index in np.flatnonzero(ended):
                last[index] = infos["final_obs"][index]
        rows, layout = self._rows, self.buffer.layout
        rows[:, layout.obs] = obs
        rows[:, layout.actions] = actions if actions.ndim == 2 else actions[:, None]
        rows[:, layout.next_obs] = last[:, : self._width]
        rows[:, layout.achieved_apart] = last[:, self._width :]
        rows[:, layout.reward] = rewards
        rows[:, layout.termination] = terminated
        rows[:, layout.truncation] = truncated > terminated
        stepped = self._everyone
        if self.mode is AutoresetMode.NEXT_STEP:
            stepped = np.flatnonzero(~self._resetting)
            rows = rows[stepped]
        # the sum is finite only if every entry is, at a fifth of the cost of testing all entries
        if not math.isfinite(rows.sum()):
            self._refuse_nonfinite(rows, stepped)
        self.buffer.add_rows(rows, stepped)
        self._planned = None
        self._remember(env_actions, rewards, stepped)
        self._obs = following
        if some_ended:
            self._end_episodes(ended, stepped)
        else:
            self._resetting = ended
        return len(stepped)

    def _plan(self, act: Act, obs: Observations) -> NDArray[Any]:
        if self._planned is None:
            self._planned = act(obs)
        return self._planned

    def _failure(self, error: RunError) -> CollectError:
        text = str(error)
        return CollectError(text if self.env_id in text else f"{self.env_id}: {text}")

    def _abandon(self, abandoned: StepAbandoned) -> int:
        """Report an environment that hangs; after a signal, just no transition."""
        if abandoned.timeout is None:
            return 0
        raise CollectError(
            f"{self.env_id}: an environment has not answered a step within {abandoned.timeout:g} "
            "seconds (env_step_timeout)"
        )

    def _remember(self, actions: NDArray[Any], rewards: Any, stepped: NDArray[np.int64]) -> None:
        if stepped is self._everyone:
            self.episodes.returns += rewards
            self.episodes.lengths += 1
        else:
            self.episodes.returns[stepped] += rewards[stepped]
            self.episodes.lengths[stepped] += 1
        for index in stepped.tolist():
            self._actions[index].append(actions[index])

    def _end_episodes(self, ended: NDArray[np.bool_], stepped: NDArray[np.int64]) -> None:
        over = stepped[ended[stepped]]
        self.episodes.end(over)
        for index in over.tolist():
            self._actions[index].clear()
            self._numbers[index] += 1
        self._resetting = ended
        if self.mode is AutoresetMode.DISABLED:
            with self._naming:
                first, _ = self.envs.reset(options={"reset_mask": ended})
            self._obs = np.array(first, np.float32)
            self._refuse_bad_start(self._obs)

    def _refuse_bad_start(self, first: Observations) -> None:
        """Refuse what a reset returned before the policy sees it: it would answer nonsense with nonsense."""
        bad = first[~np.isfinite(first)]
        if len(bad):
            raise CollectError(
                f"{self.env_id}: the first observation of an episode is {bad[0]}; nothing of it was stored"
            )

    def _refuse_nonfinite(self, rows: Rows, stepped: NDArray[np.int64]) -> None:
        layout = self.buffer.layout
        parts: dict[str, tuple[slice, type[RunError]]] = {
            # first, because an environment answers nonsense with nonsense
            "policy's action": (layout.actions, PolicyError),
            "observation": (layout.next_obs, CollectError),
            "reward": (slice(layout.reward, layout.reward + 1), CollectError),
            "achieved goal": (layout.achieved_apart, CollectError),
        }
        for name, (columns, kind) in parts.items():
            bad = ~np.isfinite(rows[:, columns]).all(1)
            if bad.any():
                row = int(bad.argmax())
                value = rows[row, columns][~np.isfinite(rows[row, columns])][0]
                episode_step = int(self.episodes.lengths[stepped[row]]) + 1
                raise kind(
                    f"{self.env_id}: the {name} is {value} at step {episode_step} of an episode "
                    f"(environment {stepped[row]} of {self.num_envs}); nothing of it was stored"
                )

    def close(self) -> None:
        """Close the environments; a failure names them."""
        try:
            with self._naming, self.guard:
                self.envs.close()
        except StepAbandoned:
            raise RunError(f"{self.env_id} hangs") from None

    # -- checkpoints --------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the position of every environment: tensors and plain values."""
        tensors = {}
        if self._obs is not None:
            tensors["envs.obs"] = torch.from_numpy(self._obs.copy())
        episodes = self.episodes
        for index, actions in enumerate(self._actions):
            if actions and episodes.lengths[index] <= MAX_REPEATED:
                tensors[f"envs.{index}.actions"] = torch.from_numpy(np.stack(list(actions)))
        if self._planned is not None:
            tensors["envs.planned"] = torch.from_numpy(np.array(self._planned))
        values = {
            "episodes": list(self._numbers),
            "returns": episodes.returns.tolist(),
            "lengths": episodes.lengths.tolist(),
            "ended": [list(pair) for pair in episodes.ended],
        }
        return tensors, values

    def load_state(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        """Repeat the actions of the running episodes; one that comes out differently starts anew."""
        ended = [(float(total), int(length)) for total, length in values["ended"]]
        self.episodes = Episodes(
            np.array(values["returns"], np.float64), np.array(values["lengths"], np.int64), ended
        )
        if not self.episodes.returns.shape == self.episodes.lengths.shape == (self.num_envs,):
            raise ValueError("returns and lengths are not one for each environment")
        self._numbers = [whole(episode) for episode in values["episodes"]]
        for index in range(self.num_envs):
            saved = tensors.get(f"envs.{index}.actions")
            self._actions[index].clear()
            self._actions[index].extend(() if saved is None else saved.numpy().copy())
        planned = tensors.get("envs.planned")
        self._planned = None if planned is None else planned.numpy().copy()
        width = self.buffer.layout.actions.stop - self.buffer.layout.actions.start
        if planned is not None and planned.numel() != self.num_envs * width:
            raise ValueError("the planned actions are not one for each environment")
        if "envs.obs" not in tensors:
            return
        expected = tensors["envs.obs"].numpy().copy()
        snapshots = [
            {"episode": number, "actions": list(actions)}
            for number, actions in zip(self._numbers, self._actions, strict=True)
        ]
        with self._naming:
            self.envs.reset()
            repeated = np.array(self._call("restore", snapshots), np.float32)
            endless = self.episodes.lengths > MAX_REPEATED
            differs = (repeated != expected).any(1) | endless
            self._obs = repeated
            if differs.any():
                self._begin_anew(differs, endless)

    def _call(self, name: str, *arguments: Any) -> Any:
        envs: Any = self.envs  # only those of gymnasium's own making have `call`
        return envs.call(name, *arguments)

    def _begin_anew(self, which: NDArray[np.bool_], endless: NDArray[np.bool_]) -> None:
        assert self._obs is not None
        reason = "does not come out the same from the same seed and actions"
        if endless[which].all():
            reason = f"has episodes of more than {MAX_REPEATED} steps, which are not repeated"
        log.warning(
            "%s %s: %d of %d running episodes start anew, so this run is not the one that was "
            "interrupted",
            self.env_id, reason, which.sum(), self.num_envs,
        )  # fmt: skip
        self._planned = None  # drawn for observations that do not come back
        first = self._call("restart", which.tolist())
        for index in np.flatnonzero(which):
            self._obs[index] = first[index]
            self._actions[index].clear()
            self._numbers[index] += 1
            self.episodes.returns[index] = 0
            self.episodes.lengths[index] = 0
            self.buffer.begin_episode(int(index))
