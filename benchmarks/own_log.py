"""Writes the thermostat's logs, which `benchmarks/own_log.yaml` trains on; always the same.

python -m benchmarks.own_log
rl-training benchmark benchmarks/own_log.yaml --page docs/benchmarks/own_log.md
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.hvac import Heating, HeatingPower, write_log

OUTPUT = Path("runs/own_log")
ENVIRONMENTS = {"levels": Heating, "power": HeatingPower}


def main() -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name, env in ENVIRONMENTS.items():
        path = OUTPUT / f"{name}.npz"
        print(f"{path}: mean return {write_log(path, env()):.1f}")


if __name__ == "__main__":
    main()
