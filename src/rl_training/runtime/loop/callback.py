"""Base class of callbacks, the list that calls them in order, and intervals between actions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rl_training.algorithms.base import Terms
from rl_training.config import ConfigError, RunError
from rl_training.runtime.loop.state import TrainerState

HOOKS = (
    "on_train_start",
    "on_collect_end",
    "on_update_end",
    "on_log",
    "on_eval_end",
    "on_train_end",
)


class Callback:
    """Hooks into the training loop; a callback implements only those that it needs.

    The loop that it serves, in `Trainer.run`:

        on_train_start
        until a stop is requested:
            collect environment steps -> on_collect_end
            or make a gradient update -> on_update_end
            log if it is due          -> on_log
            evaluate if it is due     -> on_log, on_eval_end
        on_train_end
        close

    Metrics of its own go to all files and loggers by `state.log({"user/kl": 0.1})`. Memory that must
    survive a resume goes through `state_dict`.
    """

    def on_train_start(self, state: TrainerState) -> None:
        """Run before the first tick, also after a resume."""

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        """Run after environment steps were collected."""

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        """Run after a gradient update; `terms` are detached tensors, reading one waits for it."""

    def on_log(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        """Run after a row was written: averaged losses, or the scores of an evaluation."""

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        """Run after an evaluation."""

    def on_train_end(self, state: TrainerState) -> None:
        """Run after the last tick, whatever ended the run."""

    def close(self) -> None:
        """Release open resources; called last of all, also after an error."""

    def state_dict(self) -> dict[str, Any]:
        """Return JSON-able values for the checkpoint."""
        return {}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Take back the values of `state_dict`."""


def check_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Refuse what cannot be called back, such as a class in the place of an instance of it."""
    if isinstance(callbacks, Callback):
        raise ConfigError(f"callbacks must be a list: callbacks=[{type(callbacks).__name__}(...)]")
    checked = tuple(callbacks)
    for callback in checked:
        if isinstance(callback, type):
            name = callback.__name__
            raise ConfigError(f"callbacks: {name} is a class; pass an instance: {name}(...)")
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks: {callback!r} is not a rl_training.Callback")
    return checked


class CallbackList(Callback):
    """Calls its callbacks in order, skipping those that do not implement a hook."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self.callbacks = list(callbacks)
        self._by_hook = {
            hook: [
                getattr(callback, hook)
                for callback in self.callbacks
                if getattr(type(callback), hook) is not getattr(Callback, hook)
            ]
            for hook in HOOKS
        }

    def on_train_start(self, state: TrainerState) -> None:
        for hook in self._by_hook["on_train_start"]:
            hook(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        for hook in self._by_hook["on_collect_end"]:
            hook(state, env_steps)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        for hook in self._by_hook["on_update_end"]:
            hook(state, terms)

    def on_log(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        for hook in self._by_hook["on_log"]:
            hook(state, metrics)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        for hook in self._by_hook["on_eval_end"]:
            hook(state, metrics)

    def on_train_end(self, state: TrainerState) -> None:
        for hook in self._by_hook["on_train_end"]:
            hook(state)

    def close(self) -> None:
        for callback in self.callbacks:
            callback.close()

    def state_dict(self) -> dict[str, Any]:
        # what only watches, such as a progress bar, leaves no trace in the run
        named = {key: callback.state_dict() for key, callback in self._named()}
        states = {key: values for key, values in named.items() if values}
        for key, values in states.items():
            try:
                json.dumps(values)
            except (TypeError, ValueError) as error:
                raise RunError(
                    f"state_dict() of the callback {key.partition('.')[0]} must give values that JSON "
                    f"can hold, for the checkpoint: {error}"
                ) from None
        return states

    def load_state_dict(self, values: dict[str, Any]) -> None:
        for key, callback in self._named():
            if key in values:
                callback.load_state_dict(values[key])

    def _named(self) -> list[tuple[str, Callback]]:
        """Pair each callback with its key in checkpoints: class name and number, from 0."""
        names = [type(callback).__name__ for callback in self.callbacks]
        return [
            (f"{name}.{names[:position].count(name)}", callback)
            for position, (name, callback) in enumerate(zip(names, self.callbacks, strict=True))
        ]


class Interval:
    """Fires when `global_step` crosses a multiple of `every`, however far one tick moves it.

    An environment step is over only after the updates that belong to it. A run that was interrupted
    before these updates has still to fire for the step, so `last` belongs into its checkpoint.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.last: int | None = None  # step at which it looked last

    def start(self, state: TrainerState) -> None:
        """Begin with the run, or go on between an environment step and its updates."""
        if self.last is None or not state.mid_step:
            self.last = state.global_step

    def crossed(self, state: TrainerState) -> bool:
        if state.mid_step:
            return False
        clock = state.global_step
        fired = clock // self.every > (self.last or 0) // self.every
        self.last = clock
        return fired
