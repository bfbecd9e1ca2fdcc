"""Memory of a captured program: which tensors look at which storage, and the memory pool.

Tensors of a program are plain ones, without a graph. Those that share a storage form a block, which
moves as a whole: blocks that are never in use at the same time share memory, and an elementwise
result takes the place of an argument that nobody reads again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_training.engine.capture import geometry, tensors_in
from rl_training.engine.torch_private import storage_id

LINE = 64  # bytes to which PyTorch aligns memory; sums round by how their memory is aligned


class Memory:
    """Plain tensors by block. A block is named by the storage that its tensors were recorded in."""

    def __init__(self) -> None:
        self.views: dict[int, list[Tensor]] = {}
        self._plain: dict[int, Tensor] = {}  # by the identity of the recorded tensor
        self._block: dict[int, int] = {}  # by the identity of the plain one
        self._merged: dict[int, tuple[int, Tensor]] = {}  # duplicates: their block, and its memory
        self._recorded: list[Any] = []  # keeps identities unique

    def merge(self, duplicate: Tensor, original: Tensor) -> None:
        """Let everything in the storage of `duplicate` look at that of `original` instead."""
        block, memory = self._merged.get(storage_id(original), (storage_id(original), original))
        self._merged[storage_id(duplicate)] = (block, memory)

    def original(self, storage: int) -> int:
        """Name the block that a storage belongs to."""
        return self._merged[storage][0] if storage in self._merged else storage

    def plain(self, value: Any) -> Any:
        """Copy a structure, with a plain tensor for every recorded one, always the same."""
        if isinstance(value, Tensor):
            if id(value) not in self._plain:
                self._recorded.append(value)
                self._plain[id(value)] = self._new_plain(value)
            return self._plain[id(value)]
        if isinstance(value, list | tuple):
            return type(value)([self.plain(item) for item in value])
        if isinstance(value, dict):
            return {key: self.plain(item) for key, item in value.items()}
        return value

    def _new_plain(self, recorded: Tensor) -> Tensor:
        block, source = self._merged.get(storage_id(recorded), (storage_id(recorded), recorded))
        tensor = recorded.detach()
        if source is not recorded:
            _put(tensor, source.untyped_storage())
        return self._register(block, tensor)

    def _register(self, block: int, tensor: Tensor) -> Tensor:
        self._block[id(tensor)] = block
        self.views.setdefault(block, []).append(tensor)
        return tensor

    def block(self, tensor: Tensor) -> int:
        return self._block[id(tensor)]

    def blocks(self, value: Any) -> set[int]:
        return {self.block(tensor) for tensor in tensors_in(value)}

    def view(self, base: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Make another view of a plain tensor; it moves with the block."""
        return self._register(self.block(base), change(base.detach()))

    def new(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Make memory for an intermediate result."""
        tensor = torch.empty(*shape, dtype=dtype)
        return self._register(storage_id(tensor), tensor)

    def size(self, block: int) -> int:
        return self.views[block][0].untyped_storage().nbytes()

    def is_whole(self, tensor: Tensor) -> bool:
        """Tell if it covers its storage without gaps."""
        size = tensor.untyped_storage().nbytes()
        return tensor.is_contiguous() and tensor.numel() * tensor.itemsize == size

    def move(self, block: int, storage: torch.UntypedStorage) -> None:
        for view in self.views[block]:
            _put(view, storage)

    def absorb(self, block: int, into: Tensor, offset: int = 0) -> None:
        """Put a block into the memory of a plain tensor, from its element `offset` on."""
        storage, target = into.untyped_storage(), self.block(into)
        offset += int(into.storage_offset())
        for view in self.views.pop(block):
            view.set_(storage, offset + view.storage_offset(), view.size(), view.stride())
            self._register(target, view)


def _put(view: Tensor, storage: torch.UntypedStorage) -> None:
    view.set_(storage, view.storage_offset(), view.size(), view.stride())


@dataclass(eq=False)
class Call:
    """One call of a program: `function(*args, **kwargs)`, with the result in `out`."""

    name: str  # of the operator
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    out: Any = None  # None if the operator writes into its arguments
    out_name: str = "out"
    fresh: bool = False  # its result comes in new memory every time
    replaceable: tuple[Tensor, ...] = ()  # arguments that the result may be written over
    writes: tuple[Tensor, ...] = ()  # arguments that the operator writes to

    def bound(self, memory: Memory) -> Callable[[], object]:
        if self.fresh:
            return FreshCall(self, memory)
        if self.out is None:
            return partial(self.function, *self.args, **self.kwargs)
        return partial(self.function, *self.args, **self.kwargs, **{self.out_name: self.out})


class FreshCall:
    """A call whose result is in new memory every time; views of the old result follow it there."""

    def __init__(self, call: Call, memory: Memory) -> None:
        self.name = call.name
        self._function = partial(call.function, *call.args, **call.kwargs)
        self._is_one = isinstance(call.out, Tensor)
        self._views = [
            [(v, (v.storage_offset(), v.size(), v.stride())) for v in memory.views[block]]
            for block in (memory.block(result) for result in tensors_in(call.out))
        ]

    def __call__(self) -> None:
        result = self._function()
        parts = (result,) if self._is_one else [part for part in result if part is not None]
        for part, views in zip(parts, self._views, strict=True):
            storage = part.untyped_storage()
            for view, layout in views:
                view.set_(storage, *layout)


class Pool:
    """Storages that programs share, as they run one after the other: TD3+BC 0.94, CQL 0.91."""

    def __init__(self) -> None:
        self._storages: list[torch.UntypedStorage] = []

    def place(
        self, calls: Sequence[Call], memory: Memory, movable: Iterable[int], outputs: set[int]
    ) -> None:
        """Give every movable block memory that no block in use at the same time has."""
        _Placement(calls, memory, set(movable), outputs, self._storages).run()


class _Placement:
    """Linear scan over the calls, as register allocation does it."""

    def __init__(
        self,
        calls: Sequence[Call],
        memory: Memory,
        movable: set[int],
        outputs: set[int],
        storages: list[torch.UntypedStorage],
    ) -> None:
        self._calls, self._memory, self._movable, self._storages = calls, memory, movable, storages
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        for position, call in enumerate(calls):
            for block in memory.blocks((call.args, call.kwargs, call.out)):
                self._first.setdefault(block, position)
                self._last[block] = position
        self._last |= dict.fromkeys(outputs, len(calls))
        self._fresh = {b for call in calls if call.fresh for b in memory.blocks(call.out)}
        self._free = list(storages)
        self._used: dict[int, torch.UntypedStorage] = {}

    def run(self) -> None:
        for position, call in enumerate(self._calls):
            touched = self._memory.blocks((call.args, call.kwargs, call.out))
            for result in () if call.fresh else tensors_in(call.out):
                block = self._memory.block(result)
                if block in self._movable and self._first[block] == position:
                    self._place(block, result, call, position)
            for block in touched:
                if self._last.get(block) == position and block in self._used:
                    self._free.append(self._used.pop(block))

    def _place(self, block: int, result: Tensor, call: Call, position: int) -> None:
        spent = self._spent_argument(call, result, position)
        if spent is not None and self._memory.block(spent) in self._fresh:
            self._last[self._memory.block(spent)] = self._last[block]
            self._memory.absorb(block, spent)
            return
        if spent is not None:
            storage = self._used.pop(self._memory.block(spent))
        else:
            storage = self._take(self._memory.size(block))
        self._used[block] = storage
        self._memory.move(block, storage)

    def _spent_argument(self, call: Call, result: Tensor, position: int) -> Tensor | None:
        """Find an argument that nobody reads again and that the result may be written over."""
        if not self._memory.is_whole(result):
            return None
        for argument in call.replaceable:
            block = self._memory.block(argument)
            if (
                (block in self._used or block in self._fresh)
                and self._last[block] == position
                and geometry(argument) == geometry(result)
                and all(
                    other is argument
                    or self._memory.block(other) != block
                    or geometry(other) == geometry(argument)
                    for other in tensors_in(call.args)
                )
            ):
                return argument
        return None

    def _take(self, size: int) -> torch.UntypedStorage:
        """Take what was freed last among the storages that fit best."""
        fitting = [s for s in reversed(self._free) if size <= s.nbytes() <= 2 * size + LINE]
        if not fitting:
            storage = torch.empty(size, dtype=torch.uint8).untyped_storage()
            self._storages.append(storage)
            return storage
        best = min(fitting, key=lambda storage: storage.nbytes())
        self._free = [storage for storage in self._free if storage is not best]
        return best
