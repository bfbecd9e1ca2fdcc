"""Environments in a Ray actor each, on any machine of a cluster.

`RayEnvs` is gymnasium's synchronous vector, and its members are stand-ins that pass every call on to an actor. So the
same code as for local environments puts the answers together. Requests to all actors go out before the
first answer is awaited.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from rl_training.config import EnvError, RunError
from rl_training.envs.errors import WorkerError
from rl_training.envs.ray_cluster import CPUS_EACH, connect, reserve
from rl_training.envs.ray_member import Failure, Maker, Member, versions
from rl_training.imports import working_directory

log = logging.getLogger("rl_training")
CLOSE_SECONDS = 5.0  # for all environments together to close
FREE_SECONDS = 0.5  # to give back their room


class RemoteEnv(gym.Env[Any, Any]):
    """Stand-in for the environment of an actor.

    `make` and `begin` send a request and return; `step` and `reset` wait for an answer.
    """

    def __init__(
        self, index: int, actor: Any, *, mode: AutoresetMode, step_timeout: float | None
    ) -> None:
        self.index, self.actor, self.mode, self.step_timeout = index, actor, mode, step_timeout
        self.node = "a Ray node"
        self.last: Future[Any] | None = None  # request, answered or not
        self._begun = False  # its answer has not been taken
        self._deadline: float | None = None
        self._ended = False
        self._following: Any = None  # result of the reset that the last step has made

    def make(self, maker: Maker, registered: EnvSpec | None) -> None:
        """Send the request to make the environment."""
        try:
            self.last = self.actor.make.remote(maker, registered).future()
        except TypeError as error:
            raise EnvError(f"the environment cannot be sent to Ray: {_last_line(error)}") from None

    def made(self) -> None:
        """Wait until the environment is made, and take over what the vector asks of its members."""
        try:
            made = self.answer()
        except (WorkerError, RunError) as error:
            raise EnvError(str(error)) from None
        self.observation_space, self.action_space = made.observation_space, made.action_space
        self.metadata, self.render_mode = made.metadata, made.render_mode
        self.node = f"the Ray node {made.node}"
        for package, version in versions().items():
            if made.versions[package] != version:
                log.warning(
                    "environment %d, on %s, uses %s %s, but this process %s: its transitions may differ from "
                    "those of local environments",
                    self.index, self.node, package, made.versions[package], version,
                )  # fmt: skip

    def ask(self, name: str, *arguments: Any, limit: float | None = None) -> None:
        """Send a request."""
        self._deadline = None if limit is None else time.monotonic() + limit
        self.last, self._begun = self.actor.do.remote(name, *arguments).future(), True

    def begin(self, action: Any) -> None:
        """Send the request of a step; in NEXT_STEP mode the one after an episode's end resets."""
        if self._ended and self.mode is AutoresetMode.NEXT_STEP:
            self.ask("reset", {}, limit=self.step_timeout)
        else:
            resets = self.mode is AutoresetMode.SAME_STEP
            self.ask("step", action, resets, limit=self.step_timeout)

    def answer(self) -> Any:
        """Wait for the answer to the last request; a signal is handled at once meanwhile."""
        assert self.last is not None
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        self._begun = False
        try:
            answer = self.last.result(left)
        except FutureTimeoutError:
            raise RunError(
                f"environment {self.index} has not answered a step within {self.step_timeout:g} "
                "seconds (env_step_timeout)"
            ) from None
        except Exception as error:  # Ray's own; those of environments come as a `Failure`
            raise RunError(self._lost(error)) from None
        if isinstance(answer, Failure):
            raise WorkerError(answer.text)
        return answer

    def _lost(self, error: Exception) -> str:
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception):  # what could not be sent, for example
            return f"environment {self.index} on {self.node}: {_last_line(cause)}"
        if type(error).__name__ == "ActorUnavailableError":
            return f"environment {self.index} on {self.node} cannot be reached any more"
        return f"environment {self.index} on {self.node} died: {_last_line(error)}"

    def forget(self) -> None:
        """Forget what is left of a step that failed."""
        self._begun, self._following = False, None

    def step(self, action: Any) -> Any:
        """Return the result of the step that was begun, or of a new one."""
        if not self._begun:
            self.begin(action)
        result, self._following = self.answer()
        self._ended = bool(result[2] or result[3])
        return result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Return the result of the reset that the last step made or that was begun, or of a new one."""
        self._ended = False
        if self._following is not None:
            following, self._following = self._following, None
            return following
        if not self._begun:
            self.ask("reset", {"seed": seed, "options": options})
        return self.answer()

    def render(self) -> Any:
        """Return the image that the environment renders."""
        self.ask("call", "render", ((), {}))
        return self.answer()

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the environment."""
        del force
        self.ask("set", name, value)
        self.answer()
        return True


class RayEnvs(SyncVectorEnv):
    """Vector of environments in a Ray actor each; they all step at the same time."""

    envs: list[RemoteEnv]  # type: ignore[assignment]

    def __init__(
        self,
        makers: Sequence[Maker],
        *,
        registered: EnvSpec | None = None,
        step_timeout: float | None = None,
        copy: bool = True,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        self._ray = ray = connect()
        group = reserve(ray, len(makers))
        actors: list[Any] = []
        self._free = weakref.finalize(self, _free, ray, group, actors)
        try:
            for index in range(len(makers)):
                actors.append(_start(ray, group, index))
            members = [
                RemoteEnv(index, actor, mode=mode, step_timeout=step_timeout)
                for index, actor in enumerate(actors)
            ]
            for member, maker in zip(members, makers, strict=True):
                member.make(maker, registered)
            for member in members:
                member.made()
            super().__init__(
                [lambda member=member: member for member in members],  # type: ignore[misc]
                copy=copy,
                autoreset_mode=mode,
            )
        except BaseException:
            self._free()
            raise

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> Any:
        """Reset the environments; all at the same time, unless seeds or options are given."""
        for member in self.envs:
            member.forget()
            if seed is None and options is None:
                member.ask("reset", {})
        return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        """Step the environments; one that dies or takes too long is a `RunError`."""
        for member, action in zip(self.envs, iterate(self.action_space, actions), strict=True):
            member.forget()
            member.begin(action)
        return super().step(actions)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or return an attribute of each."""
        given = self._ray.put((args, kwargs))  # sent once to each machine
        for member in self.envs:
            member.ask("call", name, given)
        return tuple(member.answer() for member in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Let idle environments close, and free the actors in any case."""
        del kwargs
        failures: list[str] = []
        deadline = time.monotonic() + CLOSE_SECONDS
        if all(member.last is None or member.last.done() for member in self.envs):
            for member in self.envs:
                member.ask("close", limit=max(0.0, deadline - time.monotonic()))
            for member in self.envs:
                try:
                    member.answer()
                except WorkerError as error:
                    failures.append(str(error))
                except RunError:  # it has died, or takes too long
                    pass
        self._free()
        if failures:
            raise WorkerError(failures[0])


def _start(ray: Any, group: Any, index: int) -> Any:
    """Start the actor of one environment where room was reserved for it."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    strategy = strategies.PlacementGroupSchedulingStrategy(group, index)
    actor = ray.remote(Member).options(num_cpus=CPUS_EACH, scheduling_strategy=strategy)
    return actor.remote(sys.path, str(working_directory()))


def _free(ray: Any, group: Any, actors: Sequence[Any]) -> None:
    """End the actors and give back their room."""
    if not ray.is_initialized():
        return
    for actor in actors:
        ray.kill(actor)
    # in a thread, because it waits a minute for a head node that is gone; Ray frees the room then anyway
    removal = threading.Thread(target=ray.util.remove_placement_group, args=(group,), daemon=True)
    removal.start()
    removal.join(FREE_SECONDS)


def _last_line(error: Exception) -> str:
    """Return the first sentence of the last line; Ray's texts begin with long tracebacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].split(". ")[0] if lines else type(error).__name__
