"""Operations that are seen once and then repeated: in the same order, in the same memory, by nothing else.

What PyTorch's dispatcher carries out for a loss and its gradient does not change from one update to the
next, only what the tensors hold. So all tensors of one evaluation are kept, and the operations between
them repeated: without the functions that led to them, without a graph, without views to be made again,
and without new memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from rl_training.data.transitions.batch import LINE, memory_of
from rl_training.runtime.recording import (
    UNFILLED,
    Operation,
    Recorder,
    UnrepeatableError,
    bindings,
)

Call = Callable[[], object]

# What these fill memory with does not depend on what the tensors hold that they take a shape from.
_FILLED_BY_SHAPE = frozenset(
    {"ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"}
)
_JOINING = frozenset({"cat", "stack"})


class Program:
    """What has been recorded, ready to `run`; `outputs` and `numbers` then hold the results."""

    def __init__(
        self,
        recorder: Recorder,
        outputs: Sequence[Tensor],
        numbers: Sequence[Tensor] = (),
        own: Set[int] = frozenset(),
    ) -> None:
        """`numbers` are further outputs, of one number each, that are wanted in one tensor.

        `own` is memory that nothing else relies on; no other may be written to.
        """
        if recorder.obstacle is not None:
            raise UnrepeatableError(recorder.obstacle)
        self._plain: dict[int, Tensor] = {}  # by the identity of those that the recorder keeps
        wanted = [*outputs, *numbers]
        needed = _needed(_varying(recorder.operations, own, wanted), wanted)
        self.outputs = [self._plainly(tensor) for tensor in outputs]
        singles = [self._plainly(tensor) for tensor in numbers]
        prepared = [(operation, *self._prepared(operation)) for operation in needed]
        self.calls = [self._call(*each) for each in prepared]
        # memory that is filled by being written into, so that it may as well be elsewhere
        self._movable = {m for each in needed if each.into is not None for m in each.makes}
        for position in reversed(range(len(needed))):
            if self._joins(needed, position):
                del self.calls[position]
        self.numbers = torch.zeros(len(numbers))
        for place, single in zip(self.numbers, singles, strict=True):
            self._put(single, place)
        self._plain.clear()

    def _joins(self, operations: Sequence[Operation], position: int) -> bool:
        """Whether it only joins what is now written side by side at once."""
        operation = operations[position]
        if operation.name not in _JOINING or memory_of(operation.result) not in self._movable:
            return False
        parts, joined = self._plainly(operation.args[0]), self._plainly(operation.result)
        memories = {memory_of(part) for part in parts}
        changed = {m for each in operations[position + 1 :] for m in each.writes}
        if (
            operation.kwargs
            or operation.args[1:] not in ((), (0,))
            or not joined.is_contiguous()
            or len(memories) < len(parts)
            or not memories <= self._movable
            or changed & {memory_of(joined), *memories}
            or not all(map(_is_whole, parts))
        ):
            return False
        places = joined.view(-1).split([part.numel() for part in parts])
        if any(place.data_ptr() % LINE for place in places):
            return False  # products and sums round by how the memory is aligned
        for part, place in zip(parts, places, strict=True):
            self._move(part, place)
        self._movable.discard(memory_of(joined))
        return True

    def _put(self, single: Tensor, place: Tensor) -> None:
        """Have it written to this place at once, if it is one of memory of its own, or copied."""
        place.copy_(single)
        if memory_of(single) in self._movable and _is_whole(single):
            self._move(single, place)
        else:
            self.calls.append(partial(torch.Tensor.copy_, place, single))

    def _move(self, tensor: Tensor, place: Tensor) -> None:
        """To this place, with all that look at the same memory."""
        memory, start, storage = memory_of(tensor), place.storage_offset(), place.untyped_storage()
        self._movable.discard(memory)
        for viewer in self._plain.values():
            if memory_of(viewer) == memory:
                offset = start + viewer.storage_offset()
                viewer.set_(storage, offset, viewer.size(), viewer.stride())

    def run(self) -> None:
        # not only without a graph: below everything that would keep one
        with torch._C._InferenceMode(True):
            for call in self.calls:
                call()

    def __len__(self) -> int:
        return len(self.calls)

    def _prepared(self, operation: Operation) -> tuple[Any, Any, Any]:
        return (
            self._plainly(operation.args),
            self._plainly(operation.kwargs),
            self._plainly(operation.result),
        )

    def _plainly(self, value: Any) -> Any:
        """The same with tensors that know of no graph, always the same one for the same tensor."""
        if isinstance(value, Tensor):
            if id(value) not in self._plain:
                self._plain[id(value)] = value.detach()
            return self._plain[id(value)]
        if isinstance(value, list | tuple):
            return type(value)([self._plainly(item) for item in value])
        if isinstance(value, dict):
            return {key: self._plainly(item) for key, item in value.items()}
        return value

    def _call(self, operation: Operation, args: Any, kwargs: Any, result: Any) -> Call:
        if operation.writes:
            return partial(_repeating(operation.function, kwargs), *args, **kwargs)
        if operation.into is not None:
            function, name, others = operation.into
            args = args if others is None else self._plainly(others)
            return partial(function, *args, **kwargs, **{name: result})
        return MadeAnew(operation, args, kwargs, result, list(self._plain.values()))


class MadeAnew:
    """An operation whose result is new every time; whoever looked at the old one looks at this."""

    def __init__(
        self, operation: Operation, args: Any, kwargs: Any, result: Any, viewers: Sequence[Tensor]
    ) -> None:
        self.name, self._function = operation.name, operation.function._op
        self._args, self._kwargs = args, kwargs
        self._is_one = isinstance(result, Tensor)
        self._viewers = [
            [
                (viewer, (viewer.storage_offset(), viewer.size(), viewer.stride()))
                for viewer in viewers
                if memory_of(viewer) == memory_of(each)
            ]
            for each in ((result,) if self._is_one else result)
            if each is not None
        ]

    def __call__(self) -> None:
        new = self._function(*self._args, **self._kwargs)
        made = (new,) if self._is_one else [each for each in new if each is not None]
        for each, group in zip(made, self._viewers, strict=True):
            storage = each.untyped_storage()
            for viewer, geometry in group:
                viewer.set_(storage, *geometry)


def _is_whole(tensor: Tensor) -> bool:
    """Whether it has memory to itself, without gaps."""
    size = tensor.untyped_storage().nbytes()
    return tensor.is_contiguous() and tensor.numel() * tensor.itemsize == size


def _varying(
    operations: Sequence[Operation], own: Set[int], outputs: Sequence[Tensor]
) -> list[Operation]:
    """Without those that would do the same every time, or nothing.

    Outputs are made every time, since who takes them may change them: gradients are clipped in place.
    """
    made = {memory for operation in operations for memory in operation.makes}
    written = {memory for operation in operations for memory in operation.writes}
    written |= {memory_of(tensor) for tensor in outputs}
    for operation in operations:
        if not operation.writes <= made | own:
            raise UnrepeatableError(f"{operation.function} changes a tensor that is not its own")
    constant: set[int] = set()
    varying = []
    for operation in operations:
        if operation.only_looks or operation.name in UNFILLED:
            continue
        fixed = operation.reads <= constant or operation.name in _FILLED_BY_SHAPE
        if fixed and not operation.writes and not operation.makes & written:
            constant |= operation.makes
        else:
            varying.append(operation)
    return varying


def _needed(operations: Sequence[Operation], outputs: Sequence[Tensor]) -> list[Operation]:
    """Those that have a part in the outputs."""
    wanted = {memory_of(tensor) for tensor in outputs}
    needed = []
    for operation in reversed(operations):
        if (operation.makes | operation.writes) & wanted:
            wanted |= operation.reads
            needed.append(operation)
    return needed[::-1]


def _repeating(function: OpOverload, kwargs: Any) -> Callable[..., object]:
    """PyTorch's own binding of an operation that writes, where there is one: it costs half."""
    name = function._schema.name.partition("::")[2]
    if name.endswith("_") and not name.startswith("_"):
        return getattr(torch.Tensor, name, function._op)
    if "out" in kwargs:
        return next(bindings(name), function._op)
    return function._op
