"""Training works without any of PyTorch's private names, which all stand in one file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.engines import batches_of, data_of, learner

import rl_training
from rl_training.engine import (
    CapturedEngine,
    adam,
    capture,
    captured,
    memory,
    program,
    torch_private,
)

Hide = Callable[[pytest.MonkeyPatch], None]


class Without:
    """A module or an object, but without some of its names."""

    def __init__(self, original: Any, *names: str, **replaced: Any) -> None:
        self._original, self._hidden, self._replaced = original, names, replaced

    def __getattr__(self, name: str) -> Any:
        if name in self._hidden:
            raise AttributeError(name)
        if name in self._replaced:
            return self._replaced[name]
        return getattr(self._original, name)


def hide_torch(*names: str, **replaced: Any) -> Hide:
    def hide(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(torch_private, "torch", Without(torch_private.torch, *names, **replaced))

    return hide


def hide_storage_identity(patch: pytest.MonkeyPatch) -> None:
    original = torch_private.storage_id

    class Plain:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def untyped_storage(self) -> Any:
            return Without(self.tensor.untyped_storage(), "_cdata")

    for module in (torch_private, capture, captured, memory, program):
        patch.setattr(module, "storage_id", lambda tensor: original(Plain(tensor)))


def hide_operator(patch: pytest.MonkeyPatch) -> None:
    original = torch_private.operator
    for module in (torch_private, capture, program):
        patch.setattr(
            module, "operator", lambda function: original(Without(function, "_op")) and function
        )


def hide_schema(patch: pytest.MonkeyPatch) -> None:
    original = torch_private.schema_of
    for module in (torch_private, capture):
        patch.setattr(module, "schema_of", lambda function: original(Without(function, "_schema")))


def hide_dispatch_mode(patch: pytest.MonkeyPatch) -> None:
    patch.delattr("torch.utils._python_dispatch.TorchDispatchMode")
    assert torch_private.dispatch_mode() is None
    patch.setattr(capture.Recorder, "available", False)


HIDDEN: dict[str, Hide] = {
    "_fused_adam_": hide_torch("_fused_adam_"),
    "_foreach_lerp_": hide_torch("_foreach_lerp_"),
    "_InferenceMode": hide_torch(_C=Without(torch._C, "_InferenceMode")),
    "_VariableFunctions": hide_torch(_C=Without(torch._C, "_VariableFunctions", "_nn", "_linalg")),
    "_C": hide_torch("_C"),
    "_cdata": hide_storage_identity,
    "_op": hide_operator,
    "_schema": hide_schema,
    "TorchDispatchMode": hide_dispatch_mode,
}
EAGER = {"_schema", "TorchDispatchMode"}  # without these nothing can be captured


def trained(name: str, kind: str) -> Any:
    algorithm = learner(name, kind, engine=CapturedEngine(), hidden_sizes=(24, 24))
    for batch in batches_of(data_of(kind), 6):
        algorithm.update(batch)
    return algorithm


def assert_same_results(name: str, kind: str, hide: Hide, captures: bool) -> None:
    expected = trained(name, kind)
    with pytest.MonkeyPatch.context() as patch:
        hide(patch)
        found = trained(name, kind)
    assert bool(found.engine.programs) == captures
    for ours, plain in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize(("name", "kind"), [("sac", "continuous"), ("dqn", "discrete")])
def test_training_gives_the_same_without(hidden: str, name: str, kind: str) -> None:
    assert_same_results(name, kind, HIDDEN[hidden], captures=hidden not in EAGER)


@pytest.mark.parametrize(("name", "kind"), [("sac", "continuous"), ("dqn", "discrete")])
def test_training_gives_the_same_without_all_of_them(name: str, kind: str) -> None:
    def hide_all(patch: pytest.MonkeyPatch) -> None:
        hide_torch("_fused_adam_", "_foreach_lerp_", "_C")(patch)
        for hide in (hide_storage_identity, hide_operator, hide_schema, hide_dispatch_mode):
            hide(patch)
        assert torch_private.fused_adam() is None
        assert adam.fused_adam() is None

    assert_same_results(name, kind, hide_all, captures=False)


PRIVATE = re.compile(
    r"\btorch\._|\btorch(\.\w+)*\._|\bfrom torch[\w.]* import _|\._cdata\b|_python_dispatch|"
    r"\._schema\b|\._op\b|[\"'](_schema|_op|_cdata|_C|_VariableFunctions|_InferenceMode)[\"']"
)


def test_private_names_of_pytorch_stand_in_one_file() -> None:
    root = Path(rl_training.__file__).parent
    allowed = Path(torch_private.__file__)
    assert PRIVATE.search(allowed.read_text())
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if path != allowed
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert found == []
