"""The engine: differentiates losses fast, and knows nothing but tensors.

- `door`           `Engine`, the protocol that whoever trains networks sees
- `eager`          `EagerEngine`: autograd, operation by operation
- `captured`       `CapturedEngine`, the default: captures a loss once and replays it
- `capture`        records dispatcher calls and compares recordings
- `program`        turns a recording into calls on fixed memory
- `rewrites`       cheaper calls for recorded ones, each with its measured gain
- `memory`         blocks of memory and the pool that programs share
- `adam`           fused Adam and Polyak averaging
- `torch_private`  private PyTorch names, each with a public fallback
"""

from rl_training.engine.adam import FusedAdam, polyak_average
from rl_training.engine.captured import CapturedEngine
from rl_training.engine.door import (
    Engine,
    Function,
    Gradients,
    Inputs,
    Loss,
    Terms,
    UnusedParametersError,
)
from rl_training.engine.eager import EagerEngine

__all__ = [
    "CapturedEngine",
    "EagerEngine",
    "Engine",
    "Function",
    "FusedAdam",
    "Gradients",
    "Inputs",
    "Loss",
    "Terms",
    "UnusedParametersError",
    "polyak_average",
]
