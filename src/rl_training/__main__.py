"""Entry point of `python -m rl_training` and of the console script `rl-training`."""

from __future__ import annotations


def main() -> None:
    from rl_training.cli.main import main as run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
