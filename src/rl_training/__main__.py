"""Entry point of `python -m rl_training` and of the console script `rl-training`."""

from __future__ import annotations


def main() -> None:
    from rl_training.cli import signals

    try:
        signals.raise_on_signals()
        from rl_training.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        code = signals.exit_code()
    raise SystemExit(code)


if __name__ == "__main__":
    main()
