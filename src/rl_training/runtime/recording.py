"""What PyTorch carries out while it is watched, and how to do each of it again into memory that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rl_training.data.transitions.batch import memory_of

# What comes out of these cannot be told from what goes in.
_UNREPEATABLE = (
    torch.Tag.nondeterministic_seeded,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
)
# Into memory that is there these would only copy what they have made in memory of their own.
_MADE_ANEW = frozenset({"native_layer_norm", "native_layer_norm_backward"})
_COPYING = frozenset({"clone", "_to_copy"})
_READING = frozenset({Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__})
UNFILLED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


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
        if self.name in _MADE_ANEW | UNFILLED:
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


def bindings(name: str) -> Iterator[Callable[..., object]]:
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
    for binding in bindings(operation.name):
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
