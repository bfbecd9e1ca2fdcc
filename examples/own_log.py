"""Train a controller from a machine's log, without a simulator.

A heater was run by hand. Its log has one line per minute: the shift, the temperature, the set
point, and the power that the operator chose. From it we learn which power to choose.

Run it with `python examples/own_log.py [gradient updates] [output directory]`.
"""

import io
import sys

import numpy as np

from rl_training import TD3BC, TrainConfig
from rl_training.data import TransitionDataset


def write_log() -> str:
    """Make up the log: 20 shifts of 50 minutes, with an operator who reacts too weakly."""
    rng = np.random.default_rng(0)
    lines = ["shift,temperature,set_point,power"]
    for shift in range(20):
        temperature, set_point = 20.0, rng.uniform(50, 80)
        for _ in range(50):
            power = np.clip(0.02 * (set_point - temperature) + rng.normal(0, 0.2), 0, 1)
            lines.append(f"{shift},{temperature:.3f},{set_point:.3f},{power:.4f}")
            temperature += 4 * power - 0.03 * (temperature - 20) + rng.normal(0, 0.1)
    return "\n".join(lines)


def read_log(text: str) -> TransitionDataset:
    table = np.genfromtxt(io.StringIO(text), delimiter=",", names=True)
    obs = np.stack([table["temperature"], table["set_point"]], axis=1)
    same_shift = table["shift"][:-1] == table["shift"][1:]  # a shift's last line has no next one
    last_of_shift = np.append(~same_shift[1:], True)
    return TransitionDataset(
        obs=obs[:-1][same_shift],
        actions=table["power"][:-1, None][same_shift],
        rewards=-np.abs(obs[1:, 0] - obs[1:, 1])[same_shift],  # degrees away from the set point
        next_obs=obs[1:][same_shift],
        terminations=np.zeros(same_shift.sum(), bool),  # the process itself never ends,
        truncations=last_of_shift[same_shift],  # the recording does
    )


def main(updates: int = 3_000, output_dir: str = "runs/own_log") -> None:
    log = read_log(write_log())
    facts = log.describe()
    print(f"{facts['transitions']} transitions in {facts['episodes']} shifts")
    config = TrainConfig(
        algo="td3_bc",
        env_id=None,  # no simulator: sizes come from the log, and nothing is evaluated
        total_timesteps=updates,
        output_dir=output_dir,
        algo_kwargs={"hidden_sizes": [64, 64], "action_low": 0.0, "action_high": 1.0},
    )
    algo = TD3BC(config)
    algo.learn(dataset=log)
    for temperature in (30.0, 55.0, 70.0):
        power = algo.predict([temperature, 60.0])[0]
        print(f"{temperature:.0f} degrees, set point 60: power {power:.2f}")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, str), sys.argv[1:], strict=False)))
