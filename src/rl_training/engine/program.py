"""Turns a recording into a program: a flat list of calls on fixed memory, ready to be replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from rl_training.engine.capture import (
    UNFILLED,
    CaptureError,
    Operation,
    Recorder,
    geometry,
    key_of,
    tensors_in,
    written,
)
from rl_training.engine.memory import LINE, Call, Memory, Pool
from rl_training.engine.rewrites import rewrite
from rl_training.engine.torch_private import below_autograd, bindings, operator, storage_id

# these fill memory with numbers that do not depend on the values of their arguments
_FILLED_BY_SHAPE = frozenset(
    {"ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"}
)


class Program:
    """Calls that `run` repeats; `outputs` and `numbers` then hold the results."""

    def __init__(
        self,
        recorder: Recorder,
        outputs: Sequence[Tensor],
        numbers: Sequence[Tensor] = (),
        pool: Pool | None = None,
    ) -> None:
        """Build from a recording; `numbers` are further outputs, scalars wanted in one vector."""
        if recorder.obstacle is not None:
            raise CaptureError(recorder.obstacle)
        results = [*outputs, *numbers]
        memory = Memory()
        varying = _varying(recorder.operations, results)
        operations = _without_duplicates(varying, memory, outputs)
        operations = _needed(operations, results, memory.original)
        self.outputs: list[Tensor] = [memory.plain(tensor) for tensor in outputs]
        scalars = [memory.plain(tensor) for tensor in numbers]
        self.reads = {storage_id(tensor) for tensor in results}.union(
            *(operation.reads for operation in operations)
        )
        for operation in operations:  # all views first, so that rewrites see who reads what
            memory.plain((operation.args, operation.kwargs, operation.result))
        movable = {
            block
            for operation in operations
            if operation.out_form is not None
            for block in memory.blocks(memory.plain(operation.result))
        }
        calls = [_call(operation, memory) for operation in operations]
        calls, added = rewrite(calls, memory, memory.blocks([self.outputs, scalars]))
        movable |= added
        calls = _join_in_place(calls, memory, movable)
        self.numbers = torch.zeros(len(numbers))
        calls += _gather_numbers(scalars, self.numbers, memory, movable, calls)
        fixed = memory.blocks(self.outputs)  # as joined meanwhile
        (pool or Pool()).place(calls, memory, movable & memory.views.keys(), fixed)
        self.calls: list[Callable[[], object]] = [call.bound(memory) for call in calls]
        self.names = [call.name for call in calls]

    def run(self) -> None:
        with below_autograd():  # cheaper than no_grad: nothing keeps version counters either
            for call in self.calls:
                call()

    def __len__(self) -> int:
        return len(self.calls)


def _varying(operations: Sequence[Operation], outputs: Sequence[Tensor]) -> list[Operation]:
    """Leave out views, and calls whose result never changes.

    Outputs are computed every time, since whoever takes them may change them.
    """
    made = {block for operation in operations for block in operation.makes}
    written = {block for operation in operations for block in operation.writes}
    written |= {storage_id(tensor) for tensor in outputs}
    for operation in operations:
        if not operation.writes <= made:
            raise CaptureError(f"{operation.function} changes a tensor that it did not make")
    constant: set[int] = set()
    varying = []
    for operation in operations:
        if operation.is_view or operation.name in UNFILLED:
            continue
        fixed = operation.reads <= constant or operation.name in _FILLED_BY_SHAPE
        if fixed and not operation.writes and not operation.makes & written:
            constant |= operation.makes
        else:
            varying.append(operation)
    return varying


def _without_duplicates(
    operations: Sequence[Operation], memory: Memory, outputs: Sequence[Tensor]
) -> list[Operation]:
    """Common subexpressions: compute once what is computed twice from the same tensors.

    A policy that a loss evaluates with and without gradient, for example: AWAC 0.94, CRR 0.97.
    Outputs have memory of their own, since whoever takes them may change them.
    """
    changed = {block for operation in operations for block in operation.writes}
    own = {storage_id(tensor) for tensor in outputs}

    def of_tensor(tensor: Tensor) -> Any:
        return memory.original(storage_id(tensor)), geometry(tensor)

    first_with: dict[Any, Operation] = {}
    unique = []
    for operation in operations:
        if operation.writes or (operation.makes | operation.reads) & changed:
            unique.append(operation)
            continue
        key = (operation.function, key_of((operation.args, operation.kwargs), of_tensor))
        first = first_with.setdefault(key, operation)
        if first is operation or operation.makes & own:
            unique.append(operation)
            continue
        for copy, tensor in zip(
            tensors_in(operation.result), tensors_in(first.result), strict=True
        ):
            memory.merge(copy, tensor)
    return unique


def _needed(
    operations: Sequence[Operation], outputs: Sequence[Tensor], original: Callable[[int], int]
) -> list[Operation]:
    """Leave out calls that have no part in the outputs."""
    wanted = {original(storage_id(tensor)) for tensor in outputs}
    needed = []
    for operation in reversed(operations):
        if (operation.makes | operation.writes) & wanted:
            wanted |= set(map(original, operation.reads))
            needed.append(operation)
    return needed[::-1]


def _call(operation: Operation, memory: Memory) -> Call:
    args, kwargs = memory.plain(operation.args), memory.plain(operation.kwargs)
    name = operation.name
    if operation.writes:
        writes = tuple(written(operation.function, args, kwargs))
        return Call(name, _in_place_form(operation, kwargs), args, kwargs, writes=writes)
    result = memory.plain(operation.result)
    if operation.out_form is None:
        return Call(name, operator(operation.function), args, kwargs, result, fresh=True)
    form = operation.out_form
    return Call(
        name,
        form.function,
        args if form.args is None else memory.plain(form.args),
        kwargs,
        result,
        form.name,
        replaceable=tuple(tensors_in(args)) if _is_pointwise(operation) else (),
    )


def _is_pointwise(operation: Operation) -> bool:
    return torch.Tag.pointwise in operation.function.tags


def _in_place_form(operation: Operation, kwargs: dict[str, Any]) -> Callable[..., Any]:
    """Find PyTorch's own binding of an operator that writes: calling it costs half."""
    name, form = operation.name, operator(operation.function)
    if name.endswith("_") and not name.startswith("_"):
        method: Callable[..., Any] = getattr(torch.Tensor, name, form)
        return method
    return next(bindings(name), form) if "out" in kwargs else form


def _join_in_place(calls: list[Call], memory: Memory, movable: set[int]) -> list[Call]:
    """Drop `cat` and `stack` calls: their parts are written side by side at once.

    Gradients of an ensemble's members, for example: SAC 0.99, with 64-64 networks 0.98.
    """
    for position in reversed(range(len(calls))):
        if _joins(calls, position, memory, movable):
            del calls[position]
    return calls


def _joins(calls: Sequence[Call], position: int, memory: Memory, movable: Set[int]) -> bool:
    call = calls[position]
    if call.name not in ("cat", "stack") or call.kwargs or call.args[1:] not in ((), (0,)):
        return False
    parts, joined = call.args[0], call.out
    blocks = [memory.block(part) for part in parts]
    written_later = memory.blocks([other.writes for other in calls[position + 1 :]])
    if (
        memory.block(joined) not in movable
        or not joined.is_contiguous()
        or len(set(blocks)) < len(blocks)
        or not set(blocks) <= movable
        or written_later & {memory.block(joined), *blocks}
        or not all(map(memory.is_whole, parts))
    ):
        return False
    offset, offsets = 0, []
    for part in parts:
        offsets.append(offset)
        offset += part.numel()
    start = joined.storage_offset()  # it may be a part of another join itself
    aligned = not any((start + offset) * joined.itemsize % LINE for offset in offsets)
    if not aligned and joined.numel() > len(parts):
        return False  # products and sums of several numbers round by how their memory is aligned
    for block, offset in zip(blocks, offsets, strict=True):
        memory.absorb(block, joined, offset)
    return True


def _gather_numbers(
    scalars: Sequence[Tensor],
    numbers: Tensor,
    memory: Memory,
    movable: set[int],
    calls: Sequence[Call],
) -> list[Call]:
    """Have scalars written into one vector at once, or copied there where that cannot be."""
    vector = memory.view(memory.plain(numbers), lambda x: x)
    movable.discard(memory.block(vector))
    changed = memory.blocks([call.writes for call in calls])
    copies = []
    for position, scalar in enumerate(scalars):
        block = memory.block(scalar)
        slot = memory.view(vector, lambda x, n=position: x[n])  # type: ignore[misc]
        slot.copy_(scalar)
        if block in movable and block not in changed and memory.is_whole(scalar):
            movable.discard(block)
            memory.absorb(block, vector, position)
        else:
            copies.append(Call("copy_", torch.Tensor.copy_, (slot, scalar)))
    return copies
