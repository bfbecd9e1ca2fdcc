"""Stable-Baselines3 and its contrib package: `train` on a full replay, and `predict`."""

from __future__ import annotations

from typing import Any

from benchmarks.speed.problem import BATCH, HIDDEN, BlankEnv, Fields, Problem
from benchmarks.speed.timing import Contestant, NotMeasuredError


def find(name: str) -> Any:
    """Their learner of this name."""
    try:
        if name == "TQC":
            import sb3_contrib

            return sb3_contrib.TQC
        import stable_baselines3

        return getattr(stable_baselines3, name)
    except ImportError as error:
        raise NotMeasuredError(f"{error.name} is not installed") from None


def update(problem: Problem, name: str, unit: int = 1, **networks: Any) -> Contestant:
    """`networks` are arguments of the policy.

    One call makes all updates of a turn, which leaves out what `learn` spends on each call.
    """
    kind = find(name)
    from stable_baselines3.common.logger import Logger

    model = kind(
        "MlpPolicy",
        BlankEnv(),
        buffer_size=problem.settings.rows,
        batch_size=BATCH,
        device="cpu",
        policy_kwargs={"net_arch": list(HIDDEN), **networks},
    )
    model.set_logger(Logger(None, []))
    fill_replay(model.replay_buffer, problem.fields)
    return Contestant(lambda updates: model.train(updates, BATCH), unit)


def policy() -> Any:
    """A deterministic policy of the problem's size."""
    kwargs = {"net_arch": list(HIDDEN)}
    return find("TD3")("MlpPolicy", BlankEnv(), policy_kwargs=kwargs, buffer_size=1, device="cpu")


def fill_replay(replay: Any, fields: Fields) -> None:
    """In one piece: adding a million rows one by one takes minutes."""
    replay.observations[:, 0] = fields["observations"]
    replay.next_observations[:, 0] = fields["next_observations"]
    replay.actions[:, 0] = fields["actions"]
    replay.rewards[:, 0] = fields["rewards"]
    replay.dones[:, 0] = fields["terminals"]
    replay.full = True
