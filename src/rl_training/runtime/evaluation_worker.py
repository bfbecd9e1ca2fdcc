"""Evaluation in a process of its own, which has its own environment and gets weights as arrays.

The process is a plain subprocess: it imports neither the script that trains, which need not be
guarded by `__main__`, nor anything that is not on the path. Frames of bytes go both ways, JSON and
safetensors: no code, no pickle.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from rl_training.algorithms.registry import get_algorithm_spec, load_plugin
from rl_training.config import ConfigError, EnvError, RLTrainingError
from rl_training.data.normalizers import ObservationNormalizer
from rl_training.runtime.evaluation import Evaluation, EvaluationError, Evaluator
from rl_training.runtime.train_config import TrainConfig
from rl_training.spec import ProblemSpec

_LENGTH = struct.Struct("<Q")
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rl_training.runtime.evaluation_worker import serve; serve()"
)


class EvaluationWorker:
    """The training process's end: ask for an evaluation, go on, take the answer later."""

    def __init__(
        self,
        config: TrainConfig,
        spec: ProblemSpec,
        normalizer: ObservationNormalizer | None,
        seeds: Sequence[int],
    ) -> None:
        about = {
            "config": config.replace(device="cpu").as_dict(),
            "spec": spec.as_dict(),
            "plugin": _plugin_of(config.algo),
            "seeds": list(seeds),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps([str(place) for place in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the training process, which ends this one
        )
        try:
            self._send(json.dumps(about).encode())
            self._send(save_tensors({} if normalizer is None else _plain(normalizer.state_dict())))
            self._refuse_unfit(json.loads(self._receive()), config)
        except BaseException:
            self.close()
            raise

    def ask(self, networks: Mapping[str, Tensor]) -> None:
        """Evaluate the policy of these networks; `answer` has to be called before the next."""
        self._send(save_tensors(_plain(networks)))

    def answer(self) -> Evaluation:
        """The evaluation asked for, waited for if need be."""
        answer = json.loads(self._receive())
        if "error" in answer:
            raise EvaluationError(answer["error"])
        shaped, successes = answer["shaped_returns"], answer["successes"]
        return Evaluation(
            returns=np.array(answer["returns"], np.float64),
            lengths=np.array(answer["lengths"], np.int64),
            shaped_returns=None if shaped is None else np.array(shaped, np.float64),
            successes=None if successes is None else np.array(successes, np.float64),
        )

    def close(self) -> None:
        """End the process, whatever it is doing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # which it takes as its end
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        try:
            _write_frame(self._process.stdin, content)
        except (OSError, ValueError):
            raise self._died() from None

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        content = _read_frame(self._process.stdout)
        if content is None:
            raise self._died()
        return content

    def _died(self) -> EvaluationError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        return EvaluationError(
            f"the evaluation process died (exit code {self._process.returncode})"
        )

    @staticmethod
    def _refuse_unfit(answer: dict[str, Any], config: TrainConfig) -> None:
        if "error" not in answer:
            return
        kind = EnvError if answer["kind"] == "EnvError" else ConfigError
        raise kind(
            f"{answer['error']}\nThis is what the evaluation process says: it knows only what importing "
            f"modules registers, not what {config.env_id} or {config.algo} may owe to this process. "
            "Set eval_workers: 0, or name the environment as module:Name"
        )


def _plugin_of(algo: str) -> str | None:
    """What the process has to import to know the algorithm: a file or a module."""
    module = sys.modules[get_algorithm_spec(algo).algorithm.__module__]
    if module.__name__.startswith("rl_training.algorithms."):
        return None
    if module.__name__.startswith("rl_training_plugin_"):
        return module.__file__
    if module.__name__ == "__main__":
        raise ConfigError(
            f"{algo} is defined in the script that trains, which the evaluation process does not run: "
            "put it into a module, or set eval_workers: 0"
        )
    return module.__name__


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _write_frame(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _read_frame(stream: IO[bytes]) -> bytes | None:
    """None at the end of the stream, also in the middle of a frame."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    return content if len(content) == length else None


# -- in the process ---------------------------------------------------------------------------


def serve() -> None:
    """Evaluate what is asked for until the training process closes the pipe, or is gone."""
    requests, answers = _take_the_pipes()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the training process has made this environment and shown them
    take = _received(requests)
    try:
        evaluate = _prepare(json.loads(take()), load_tensors(take()))
    except RLTrainingError as error:
        kind = "EnvError" if isinstance(error, EnvError) else "ConfigError"
        _write_frame(answers, json.dumps({"error": str(error), "kind": kind}).encode())
        return
    _write_frame(answers, b"{}")
    while True:
        try:
            answer: dict[str, Any] = evaluate(load_tensors(take()))
        except RLTrainingError as error:
            answer = {"error": str(error)}
        _write_frame(answers, json.dumps(answer).encode())


def _take_the_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """What environments print goes to stderr, and they read nothing of what is meant for us."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, answers


def _received(requests: IO[bytes]) -> Callable[[], bytes]:
    """Requests in order. A thread reads them, to see also in the middle of an episode that none comes."""
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        while (content := _read_frame(requests)) is not None:
            received.put(content)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return received.get


def _prepare(
    about: dict[str, Any], statistics: dict[str, Tensor]
) -> Callable[[dict[str, Tensor]], dict[str, Any]]:
    """Build policy and environment once; returns what evaluates networks."""
    from rl_training.runtime.assemble import build_policy

    if about["plugin"] is not None:
        load_plugin(about["plugin"])
    config = TrainConfig(**about["config"])
    assert config.env_id is not None
    normalizer = ObservationNormalizer.from_state_dict(statistics) if statistics else None
    policy = build_policy(config, ProblemSpec.from_dict(about["spec"]), normalizer)
    evaluator = Evaluator(policy, config.env_id, config.env_kwargs)

    def evaluate(networks: dict[str, Tensor]) -> dict[str, Any]:
        policy.algorithm.load_networks(networks)
        policy.refresh()
        evaluation = evaluator.run(about["seeds"])
        arrays = vars(evaluation)
        return {name: None if array is None else array.tolist() for name, array in arrays.items()}

    return evaluate
