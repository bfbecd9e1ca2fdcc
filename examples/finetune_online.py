"""Train offline from a log, then fine-tune the policy online.

Run it with `python examples/finetune_online.py [gradient updates] [environment steps] [directory]`.
"""

import sys

from rl_training import AWAC


def main(
    updates: int = 2_000, steps: int = 3_000, output_dir: str = "runs/finetune_online"
) -> None:
    algo = AWAC.from_config(
        "awac/pendulum",
        total_timesteps=updates,
        hidden_sizes=[64, 64],
        eval_episodes=2,
        output_dir=output_dir,
    )
    offline = algo.learn()
    before = algo.evaluate(num_episodes=10)["eval/return_mean"]
    print(f"offline, {updates} updates: return {before:.1f}  ({offline.run_dir})")

    # a new run beside the offline one, which stays as it is; batches mix logged and new rows
    online = algo.learn(online=True, total_timesteps=steps)
    after = algo.evaluate(num_episodes=10)["eval/return_mean"]
    print(f"online, {steps} more steps: return {after:.1f}  ({online.run_dir})")
    print(f"logged rows per batch: {online.metrics['rollout/offline_rows_per_batch']:.0f}")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, int, str), sys.argv[1:], strict=False)))
