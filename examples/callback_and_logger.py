"""Watch a run with a callback, and send its metrics to a logger of your own.

The callback stops a run whose values explode. The logger writes every row of metrics into an SQLite
table, beside the files that each run writes anyway.

Run it with `python examples/callback_and_logger.py [gradient updates] [output directory]`.
"""

import sqlite3
import sys
from pathlib import Path

from rl_training import TD3BC
from rl_training.runs.metrics import Sink, register_logger
from rl_training.runtime import Callback


class StopWhenValuesExplode(Callback):
    """Ends the run when the mean Q value of a row of metrics is too large."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.largest = float("-inf")

    def on_log(self, state, metrics):  # floats: means since the last row, or evaluation scores
        self.largest = max(self.largest, metrics.get("train/q_mean", self.largest))
        if self.largest > self.limit:
            state.request_stop(f"q_mean is above {self.limit}")

    def state_dict(self):  # saved with every checkpoint
        return {"largest": self.largest}

    def load_state_dict(self, values):  # given back on resume
        self.largest = values["largest"]


class SQLiteSink(Sink):
    """Appends rows of metrics to `metrics.sqlite` in the run directory."""

    def __init__(self, run_dir: Path) -> None:
        self.database = sqlite3.connect(run_dir / "metrics.sqlite")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS metrics (step INT, name TEXT, value REAL)"
        )

    def write(self, row):
        values = [(row["step"], name, value) for name, value in row.items() if "/" in name]
        self.database.executemany("INSERT INTO metrics VALUES (?, ?, ?)", values)
        self.database.commit()

    def cut_back(self, rows, step):  # a resume forgets what came after the checkpoint
        self.database.execute("DELETE FROM metrics WHERE step > ?", (step,))

    def close(self):
        self.database.close()


def main(updates: int = 2_000, output_dir: str = "runs/callback_and_logger") -> None:
    register_logger("sqlite", SQLiteSink)
    guard = StopWhenValuesExplode(limit=1_000.0)
    algo = TD3BC.from_config(
        "td3_bc/pendulum",
        total_timesteps=updates,
        log_interval=max(1, updates // 4),
        eval_episodes=2,
        output_dir=output_dir,
    )
    result = algo.learn(callbacks=[guard])
    print(f"stopped: {result.stop_reason}; largest q_mean {guard.largest:.2f}")
    with sqlite3.connect(result.run_dir / "metrics.sqlite") as database:
        query = "SELECT step, value FROM metrics WHERE name = 'train/q_mean' ORDER BY step"
        for step, value in database.execute(query):
            print(f"step {step}: q_mean {value:.2f}")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, str), sys.argv[1:], strict=False)))
