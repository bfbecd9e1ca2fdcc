"""Train online in an environment of your own.

The environment is a class in an importable module. `env_id="own_environment:WaterTank"` names it,
so that evaluation, resuming and `rl-training eval` can build it again.

Run it with `python examples/own_environment.py [environment steps] [output directory]`.
"""

import sys

import gymnasium as gym
import numpy as np

from rl_training import SAC


class WaterTank(gym.Env):
    """Keep a tank at 60 degrees by opening a valve for hot water; it boils over at 100."""

    observation_space = gym.spaces.Box(-5.0, 5.0, (1,), np.float32)
    action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random: draw from it only, and resume is exact
        self.temperature = self.np_random.uniform(20.0, 90.0)
        return self._obs(), {}

    def step(self, action):
        self.temperature += 10.0 * float(action[0]) - 0.08 * (self.temperature - 20.0)
        error = abs(self.temperature - 60.0)
        boiled_over = self.temperature > 100.0  # a termination: there is nothing after it
        # no truncation here: the time limit comes from `max_episode_steps`
        return self._obs(), -error / 10.0, boiled_over, False, {"is_success": error < 2.0}

    def _obs(self):
        # on a scale of about one, because online training does not normalise observations
        return np.array([(self.temperature - 60.0) / 20.0], np.float32)


def main(steps: int = 3_000, output_dir: str = "runs/own_environment") -> None:
    algo = SAC.from_config(
        "sac/pendulum",
        env_id="own_environment:WaterTank",
        env_kwargs={"max_episode_steps": 50},
        total_timesteps=steps,
        learning_starts=min(500, steps // 2),
        hidden_sizes=[64, 64],
        output_dir=output_dir,
    )
    result = algo.learn()
    scores = algo.evaluate(num_episodes=10)
    print(f"{result.run_dir}: return {scores['eval/return_mean']:.1f}")
    for temperature in (30.0, 60.0, 90.0):
        valve = algo.predict([(temperature - 60.0) / 20.0])[0]
        print(f"{temperature:.0f} degrees: valve {valve:.2f}")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, str), sys.argv[1:], strict=False)))
