"""Write an algorithm in one file and compare it with a built-in one.

Advantage-filtered behaviour cloning: learn V(s) by regression on the returns that were observed,
then imitate only those actions after which the return was above V(s).

Run it with `python examples/own_algorithm.py [gradient updates] [output directory]`, or from the
command line: `rl-training train bc/pendulum algo=filtered_bc --plugin examples/own_algorithm.py`.
"""

import sys

import torch

from rl_training.algorithms import Algorithm, AlgorithmConfig, register
from rl_training.config import option
from rl_training.models import MLP, DeterministicActor


class FilteredBCConfig(AlgorithmConfig):
    gamma: float = option(0.99, "discount per step", ge=0, le=1)
    margin: float = option(0.0, "how far the return must be above V(s)")


def value_loss(nets, batch, noise, config):
    values = nets.value(batch.obs).squeeze(-1)
    return {"value_loss": (values - batch.returns).square().mean()}  # trains `value`


def actor_loss(nets, batch, noise, config):
    with torch.no_grad():
        advantages = batch.returns - nets.value(batch.obs).squeeze(-1)
        good = (advantages > config.margin).float()  # (batch,); no branch on the data
    errors = (nets.actor(batch.obs) - batch.actions).square().mean(-1)
    return {"actor_loss": (good * errors).mean(), "good_share": good.mean()}


@register("filtered_bc")
class FilteredBCAlgorithm(Algorithm[FilteredBCConfig]):
    losses = {"value": value_loss, "actor": actor_loss}  # in this order
    normalizes_observations = True
    normalizes_rewards = True

    @classmethod
    def needs_returns(cls, config):
        return True  # batches carry `returns`, discounted by `gamma`

    def build(self, spec, config):
        self.value = MLP(spec.obs_dim, config.hidden_sizes, 1)
        self.actor = DeterministicActor(spec.obs_dim, spec.action_dim, config.hidden_sizes)


def main(updates: int = 5_000, output_dir: str = "runs/own_algorithm") -> None:
    from rl_training.api import algorithm

    for name in ("bc", "filtered_bc"):
        algo = algorithm(name).from_config(
            "bc/pendulum", algo=name, total_timesteps=updates, output_dir=output_dir
        )
        metrics = algo.learn().metrics
        score = algo.evaluate(num_episodes=10)["eval/return_mean"]
        print(
            f"{name:12} return {score:8.1f}  good actions {metrics.get('train/good_share', 1):.2f}"
        )


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, str), sys.argv[1:], strict=False)))
