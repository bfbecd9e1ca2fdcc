"""Operations that are seen once and then repeated: in the same order, in the same memory, by nothing else.

What PyTorch's dispatcher carries out for a loss and its gradient does not change from one update to the
next, only what the tensors hold. So all tensors of one evaluation are kept, and the operations between
them repeated: without the functions that led to them, without a graph, without views to be made again,
and without new memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rl_training.data.batch import LINE, memory_of

Call = Callable[[], object]

# What comes out of these cannot be told from what goes in.
_UNREPEATABLE = (
    torch.Tag.nondeterministic_seeded,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
)
# Into memory that is there these would only copy what they have made in memory of their own.
_MADE_ANEW = frozenset({"native_layer_norm", "native_layer_norm_backward"})
# What these fill memory with does not depend on what the tensors hold that they take a shape from.
_FILLED_BY_SHAPE = frozenset(
    {"ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"}
)
_COPYING = frozenset({"clone", "_to_copy"})
_JOINING = frozenset({"cat", "stack"})
_READING = frozenset({Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__})
_UNFILLED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class UnrepeatableError(Exception):
    """These operations cannot be repeated; the message says why."""


class Writer(NamedTuple):
    """A function that writes its result into the argument of this name."""

    function: Callable[..., object]
    name: str
    args: tuple[Any, ...] | None = None  # instead of the operation's own


class Operation:
    """One call, whose tensors are kept alive, as they are seen below autograd."""

    def __init__(self, function: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        self.function, self.args, self.kwargs, self.result = function, args, kwargs, result
        self.name = function._schema.name.partition("::")[2]
        inputs, outputs = list(tensors_in((args, kwargs))), list(tensors_in(result))
        self.reads = {memory_of(tensor) for tensor in inputs}
        self.makes = {memory_of(tensor) for tensor in outputs} - self.reads
        self.writes: set[int] = set()
        if function._schema.is_mutable:
            self.writes = {memory_of(tensor) for tensor in _written(function, args, kwargs)}
        self.into: Writer | None = None
        self.only_looks = not self.writes and not self.makes
        if self.makes and not self.writes and not self._is_made_anew():
            self.into = _writing_into(self)

    def _is_made_anew(self) -> bool:
        if self.name in _MADE_ANEW | _UNFILLED:
            return True
        # before they add up, these stretch the one number that they are given to write into
        return self.name.endswith("_loss") and self.result.ndim == 0


class _Readers(TorchFunctionMode):
    """Notices what reads a tensor's values without any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READING:
            self.seen = f"{func.__name__} reads a tensor's values"
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """As a context, sees all operations of this thread."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self.obstacle: str | None = None  # why they cannot be repeated
        self._readers = _Readers()

    def __enter__(self) -> Recorder:
        self._readers.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._readers.__exit__(*error)  # type: ignore[no-untyped-call]
        self.obstacle = self.obstacle or self._readers.seen

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else PyTorch would load its compiler, which takes seconds, to keep it away from here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.obstacle is None:
            try:
                self._see(func, args, kwargs, result)
            except Exception as error:  # of tensors that have no memory of their own, for example
                self.obstacle = f"{func}: {error}"
        return result

    def _see(self, function: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        if any(tag in _UNREPEATABLE for tag in function.tags):
            self.obstacle = f"{function} is not the same every time"
        else:
            self.operations.append(Operation(function, args, kwargs, result))


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
            operation.args[1:] not in ((), (0,))
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


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def _written(function: OpOverload, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Arguments that the operation writes to, by its declaration."""
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from tensors_in(given)


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
        if operation.only_looks or operation.name in _UNFILLED:
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
        return next(_bindings(name), function._op)
    return function._op


def _bindings(name: str) -> Iterator[Callable[..., object]]:
    for module in ("_VariableFunctions", "_nn", "_linalg"):
        found = getattr(getattr(torch._C, module), name, None)
        if found is not None:
            yield found


def _writing_into(operation: Operation) -> Writer | None:
    """The same operation into memory that is there: tried out, and compared bit for bit."""
    for candidate in _candidates(operation):
        places = _like(operation.result)
        before = [place.data_ptr() for place in tensors_in(places)]
        args = operation.args if candidate.args is None else candidate.args
        try:
            candidate.function(*args, **operation.kwargs, **{candidate.name: places})
        except Exception:  # whatever it is, it is not the same operation
            continue
        after = [place.data_ptr() for place in tensors_in(places)]
        if before == after and same_bits(tensors_in(places), tensors_in(operation.result)):
            return candidate
    return None


def _candidates(operation: Operation) -> Iterator[Writer]:
    if operation.name == "rsub" and len(operation.args) == 2:  # has no such form of its own
        x, other = operation.args
        yield Writer(torch.sub, "out", (torch.as_tensor(other, dtype=x.dtype), x))
    if operation.name in _COPYING:
        yield Writer(_copy, "out")
    for binding in _bindings(operation.name):
        yield Writer(binding, "out")
    packet = operation.function.overloadpacket
    for overload in packet.overloads():
        function = getattr(packet, overload)
        outs = [argument.name for argument in function._schema.arguments if argument.is_out]
        if len(outs) == 1:
            yield Writer(function._op, outs[0])


def _copy(x: Tensor, *_: Any, out: Tensor, **__: Any) -> object:
    return out.copy_(x)


def _like(result: Any) -> Any:
    if isinstance(result, Tensor):
        return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
    return tuple(_like(each) for each in result)


def same_bits(some: Iterable[Tensor], others: Iterable[Tensor]) -> bool:
    """Whether tensors are equal to the last bit, where NaN is equal to itself."""
    return all(
        one.dtype is other.dtype and torch.equal(_bits(one), _bits(other))
        for one, other in zip(some, others, strict=True)
    )


def _bits(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.contiguous().view(torch.int64 if tensor.itemsize == 8 else torch.int32)
