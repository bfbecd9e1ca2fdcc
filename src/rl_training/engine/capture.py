"""Records dispatcher calls, as CUDA-graph capture does.

For each call it finds an `out=` form, so that replaying writes into memory that is there already. Two
recordings of a pure function are the same calls on the same tensors: their `signature`s are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rl_training.engine.torch_private import (
    bindings,
    dispatch_mode,
    operator,
    schema_of,
    storage_id,
)

# results of these differ although their arguments do not, or cannot have fixed memory
_UNCAPTURABLE = (
    torch.Tag.nondeterministic_seeded,
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
)
# their `out=` forms compute into fresh memory and copy, so that fresh memory alone costs less
_WITHOUT_OUT = frozenset({"native_layer_norm", "native_layer_norm_backward"})
_READING = frozenset({Tensor.numpy, Tensor.tolist, Tensor.__array__, Tensor.__dlpack__})
UNFILLED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class CaptureError(Exception):
    """Calls that cannot be replayed; the message says why."""


class OutForm(NamedTuple):
    """A function that computes an operation into memory given as the argument `name`."""

    function: Callable[..., object]
    name: str
    args: tuple[Any, ...] | None = None  # in place of the operation's own


class Operation:
    """One dispatcher call; its tensors, as seen below autograd, stay alive with it."""

    def __init__(
        self, function: Any, args: Any, kwargs: Any, result: Any, *, with_out_form: bool = True
    ) -> None:
        self.function, self.args, self.kwargs, self.result = function, args, kwargs, result
        schema = schema_of(function)
        self.name: str = schema.name.partition("::")[2]
        self.reads = {storage_id(tensor) for tensor in tensors_in((args, kwargs))}
        self.makes = {storage_id(tensor) for tensor in tensors_in(result)} - self.reads
        self.writes: set[int] = set()
        if schema.is_mutable:
            self.writes = {storage_id(tensor) for tensor in written(function, args, kwargs)}
        self.out_form: OutForm | None = None
        self.is_view = not self.writes and not self.makes
        if with_out_form and self.makes and not self.writes and not self._needs_fresh_memory():
            self.out_form = _find_out_form(self)

    def _needs_fresh_memory(self) -> bool:
        if self.name in _WITHOUT_OUT | UNFILLED:
            return True
        # a summed loss stretches the one number that it is given to write into
        return self.name.endswith("_loss") and self.result.ndim == 0


class _ReadDetector(TorchFunctionMode):
    """Notices reads of tensor values that are no dispatcher calls."""

    def __init__(self) -> None:
        super().__init__()
        self.obstacle: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READING:
            self.obstacle = f"{func.__name__} reads a tensor's values"
        return func(*args, **(kwargs or {}))


_DispatchMode: Any = dispatch_mode() or object


class Recorder(_DispatchMode):  # type: ignore[misc]
    """Context that records all dispatcher calls of this thread."""

    available = _DispatchMode is not object

    def __init__(self, *, with_out_forms: bool = True) -> None:
        super().__init__()
        self._with_out_forms = with_out_forms
        self.operations: list[Operation] = []
        self.obstacle: str | None = None  # reason why the calls cannot be replayed
        self._reads = _ReadDetector()

    def __enter__(self) -> Recorder:
        self._reads.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._reads.__exit__(*error)  # type: ignore[no-untyped-call]
        self.obstacle = self.obstacle or self._reads.obstacle

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from loading its compiler, which takes seconds, to keep it away from here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.obstacle is None:
            try:
                self._record(func, args, kwargs, result)
            except Exception as error:  # tensors without memory, for example
                self.obstacle = f"{func}: {error}"
        return result

    def _record(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        if any(tag in _UNCAPTURABLE for tag in function.tags):
            self.obstacle = f"{function} is not the same every time"
        else:
            self.operations.append(
                Operation(function, args, kwargs, result, with_out_form=self._with_out_forms)
            )


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def written(function: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Arguments that the operation writes to, by its schema."""
    for position, argument in enumerate(schema_of(function).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(
                args[position] if position < len(args) else kwargs.get(argument.name)
            )


def _find_out_form(operation: Operation) -> OutForm | None:
    """Try `out=` forms of the operation until one gives its result, bit for bit."""
    for candidate in _out_forms(operation):
        memory = _empty_like(operation.result)
        before = [tensor.data_ptr() for tensor in tensors_in(memory)]
        args = operation.args if candidate.args is None else candidate.args
        try:
            candidate.function(*args, **operation.kwargs, **{candidate.name: memory})
        except Exception:  # of whatever kind: it is not this operation
            continue
        after = [tensor.data_ptr() for tensor in tensors_in(memory)]
        if before == after and same_bits(tensors_in(memory), tensors_in(operation.result)):
            return candidate
    return None


def _out_forms(operation: Operation) -> Iterator[OutForm]:
    if operation.name == "rsub" and len(operation.args) == 2:  # has no such form of its own
        x, other = operation.args
        yield OutForm(torch.sub, "out", (torch.as_tensor(other, dtype=x.dtype), x))
    if operation.name == "relu":  # its own form computes into fresh memory and copies
        yield OutForm(torch.clamp_min, "out", (*operation.args, 0))
    if operation.name in ("clone", "_to_copy"):
        yield OutForm(_copy, "out")
    for binding in bindings(operation.name):
        yield OutForm(binding, "out")
    packet = operation.function.overloadpacket
    for overload in packet.overloads():
        function = getattr(packet, overload)
        outs = [argument.name for argument in schema_of(function).arguments if argument.is_out]
        if len(outs) == 1:
            yield OutForm(operator(function), outs[0])


def _copy(x: Tensor, *_: Any, out: Tensor, **__: Any) -> object:
    return out.copy_(x)


def _empty_like(result: Any) -> Any:
    if isinstance(result, Tensor):
        return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
    return tuple(_empty_like(part) for part in result)


def same_bits(first: Iterable[Tensor], second: Iterable[Tensor]) -> bool:
    """Compare tensors to the last bit; NaN equals itself."""
    return all(
        a.dtype is b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))
        for a, b in zip(first, second, strict=True)
    )


def _bits(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    kinds = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return tensor.contiguous().view(kinds[tensor.itemsize])


class _Outside:
    """A tensor that a recording reads and does not make: of a network, an input or a literal."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Outside):
            return NotImplemented
        a, b = self._tensor, other._tensor  # networks stay; literals are made anew
        return storage_id(a) == storage_id(b) or same_bits([a], [b])

    __hash__ = None  # type: ignore[assignment]


def signature(operations: Sequence[Operation]) -> list[Any]:
    """Describe calls: operators, numbers, shapes, and which tensor goes where.

    Two recordings of a pure function have equal signatures. A value that was frozen into the first,
    or a branch taken otherwise, shows as a difference. Holds no intermediate result.
    """
    numbers: dict[int, int] = {}  # of storages, in the order in which they appear

    def of_tensor(tensor: Tensor) -> Any:
        outside = None if storage_id(tensor) in numbers else _Outside(tensor)
        return numbers.setdefault(storage_id(tensor), len(numbers)), geometry(tensor), outside

    calls = []
    for operation in operations:
        arguments = key_of((operation.args, operation.kwargs), of_tensor)
        for tensor in tensors_in(operation.result):
            numbers.setdefault(storage_id(tensor), len(numbers))
        calls.append((operation.function, arguments, key_of(operation.result, of_tensor)))
    return calls


def key_of(value: Any, of_tensor: Callable[[Tensor], Any]) -> Any:
    """Describe arguments so that two descriptions are equal if the arguments are."""
    if isinstance(value, Tensor):
        return of_tensor(value)
    if isinstance(value, list | tuple):
        return tuple(key_of(item, of_tensor) for item in value)
    if isinstance(value, dict):
        return tuple((name, key_of(item, of_tensor)) for name, item in value.items())
    return type(value), repr(value)  # tells 0.0 from -0.0, and NaN equals itself


def geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()
