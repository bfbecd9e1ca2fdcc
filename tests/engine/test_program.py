"""A program gives what its function gives, for any inputs, as often as it is run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rl_training.engine.capture import CaptureError, Recorder, signature
from rl_training.engine.memory import Pool
from rl_training.engine.program import Program
from rl_training.engine.torch_private import storage_id

Function = Callable[..., list[Tensor]]


def program_of(function: Function, *inputs: Tensor, pool: Pool | None = None) -> Program:
    with Recorder() as recorder:
        outputs = function(*inputs)
    return Program(recorder, outputs, pool=pool)


def assert_agrees(
    program: Program, function: Function, *inputs: Tensor, exact: bool = True
) -> None:
    """Compare for three inputs, each replayed twice."""
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-4, "atol": 1e-4}
    for _ in range(3):
        for value in inputs:
            value.copy_(torch.randn(value.shape))
        expected = [value.clone() for value in function(*inputs)]
        for _ in range(2):
            program.run()
            for ours, plain in zip(program.outputs, expected, strict=True):
                torch.testing.assert_close(ours, plain, equal_nan=True, **tolerance)


# -- random expressions -----------------------------------------------------------------------------

SIZE = 4
UNARY: list[Callable[[Tensor], Tensor]] = [
    Tensor.sin, Tensor.relu, Tensor.tanh, Tensor.t, Tensor.clone, Tensor.contiguous,
    lambda x: x * 2, lambda x: 1 - x, lambda x: x.sum().expand(SIZE, SIZE), lambda x: x[0] + x,
    lambda x: x.mean(0, keepdim=True).expand(SIZE, SIZE), lambda x: x.flip(0),
    lambda x: torch.ones_like(x) + x, lambda x: x.double().float(), lambda x: x.view(-1).view(x.shape)
    if x.is_contiguous() else x.abs(), lambda x: torch.full((SIZE, SIZE), 0.5), lambda x: x.clamp(-1, 1),
    lambda x: torch.softmax(x, -1), lambda x: torch.nn.functional.layer_norm(x, (SIZE,)),
    lambda x: x[:, :2].repeat(1, 2), lambda x: (x[1:] - x[:-1]).repeat(2, 1)[:SIZE],
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add, torch.sub, torch.mul, torch.mm, torch.maximum, lambda a, b: a + (a @ b),
    lambda a, b: torch.cat([a, b])[1 : 1 + SIZE], lambda a, b: torch.stack([a, b]).amin(0),
    lambda a, b: torch.cat([a, b], 1)[:, ::2], lambda a, b: torch.where(a > 0, a, b),
    lambda a, b: torch.stack([torch.stack([a.sin(), b.cos()]), torch.stack([a * 2, b * 3])]).sum((0, 1)),
    lambda a, b: torch.addmm(a[0], a, b), lambda a, b: torch.cat([a, b]).norm().expand(SIZE, SIZE),
]  # fmt: skip
# they change a tensor that the function made: the first argument
IN_PLACE: list[Callable[[Tensor, Tensor], Tensor]] = [
    Tensor.add_, lambda a, b: a.mul_(0.5), lambda a, b: a.relu_(), lambda a, b: a[0].copy_(b[1]),
    lambda a, b: torch.cos(b, out=a), lambda a, b: a.t().sub_(b),
]  # fmt: skip

Step = tuple[str, int, int, int]


@st.composite
def expressions(draw: Callable[..., Any]) -> tuple[list[Step], list[int]]:
    """Steps, each an operation on earlier values; and the values that are outputs."""
    steps: list[Step] = []
    for count in range(2, 2 + draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["unary", "binary", "binary", "in place"]))
        table: list[Any] = {"unary": UNARY, "binary": BINARY, "in place": IN_PLACE}[kind]
        operation = draw(st.integers(0, len(table) - 1))
        arguments = st.integers(0, count - 1)
        steps.append((kind, operation, draw(arguments), draw(arguments)))
    chosen = st.lists(st.integers(2, len(steps) + 1), min_size=1, max_size=4)
    return steps, draw(chosen)


def function_of(expression: tuple[list[Step], list[int]]) -> Function:
    steps, outputs = expression

    def function(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for kind, operation, first, second in steps:
            a, b = values[first], values[second]
            if kind == "unary":
                values.append(UNARY[operation](a))
            elif kind == "binary":
                values.append(BINARY[operation](a, b))
            else:
                changed = a.clone()  # so that the inputs stay
                values.append(changed)
                IN_PLACE[operation](changed, b)
                if operation % 2:  # and change again what others may have read
                    values[-1].add_(1)
        return [values[position] for position in outputs]

    return function


@settings(max_examples=150, deadline=None)
@given(expressions(), st.booleans())
def test_random_expressions_give_what_they_give_eagerly(
    expression: tuple[list[Step], list[int]], numbers: bool
) -> None:
    function = function_of(expression)
    torch.manual_seed(0)
    inputs = [torch.randn(SIZE, SIZE) for _ in range(2)]

    def with_numbers(*values: Tensor) -> list[Tensor]:
        results = function(*values)
        return [*results, *(result.sum() for result in results), results[0][0, 0]]

    whole = with_numbers if numbers else function
    with Recorder() as recorder:
        results = whole(*inputs)
    count = len(expression[1])
    program = Program(recorder, results[:count], results[count:])
    for _ in range(3):
        for value in inputs:
            value.copy_(torch.randn(SIZE, SIZE))
        expected = [value.clone() for value in whole(*inputs)]
        for _ in range(2):
            program.run()
            found = [*program.outputs, *program.numbers]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@settings(max_examples=40, deadline=None)
@given(expressions(), expressions())
def test_two_programs_share_memory_and_not_results(first: Any, second: Any) -> None:
    pool = Pool()
    torch.manual_seed(0)
    inputs = [torch.randn(SIZE, SIZE) for _ in range(2)]
    functions = [function_of(first), function_of(second)]
    programs = [program_of(function, *inputs, pool=pool) for function in functions]
    for _ in range(2):
        for program, function in zip(programs, functions, strict=True):
            assert_agrees(program, function, *inputs, exact=False)


@settings(max_examples=40, deadline=None)
@given(expressions())
def test_a_pure_function_has_one_signature(expression: Any) -> None:
    function = function_of(expression)
    inputs = [torch.randn(SIZE, SIZE) for _ in range(2)]
    signatures = []
    for _ in range(2):
        for value in inputs:
            value.copy_(torch.randn(SIZE, SIZE))
        with Recorder() as recorder:
            function(*inputs)
        signatures.append(signature(recorder.operations))
    assert signatures[0] == signatures[1]


# -- rewrites ---------------------------------------------------------------------------------------


def test_a_program_does_only_what_its_outputs_need() -> None:
    def function(x: Tensor) -> list[Tensor]:
        constant = torch.full((3,), 2.0).exp()  # always the same
        unused = x.sin()
        unused.add_(1)
        y = (x.t().t() * constant).view(1, 3)  # one operation and several views
        return [y.relu_()]

    x = torch.tensor([1.0, -1.0, 2.0])
    program = program_of(function, x)
    assert program.names == ["mul", "relu_"]
    assert_agrees(program, function, x)


def test_common_subexpressions_are_computed_once() -> None:
    def function(x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            constant = (x * 2).tanh().exp()
        return [(x * 2).tanh() + constant, (x * 2.0).sum(), (x * 2).sum()]

    x = torch.randn(5)
    program = program_of(function, x)
    # 2 and 2.0 are told apart: only what is surely the same is shared
    assert sorted(program.names) == ["add", "exp", "mul", "mul", "sum", "sum", "tanh"]
    assert_agrees(program, function, x)


def test_zero_and_minus_zero_are_told_apart() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [torch.copysign(x, 0.0), torch.copysign(x, -0.0)]

    x = torch.randn(5)
    assert_agrees(program_of(function, x), function, x)


def test_what_is_changed_in_place_is_no_common_subexpression() -> None:
    def function(x: Tensor) -> list[Tensor]:
        a, b = x.exp(), x.exp()
        a.add_(1)
        return [a, b, x.exp()]

    x = torch.randn(5)
    assert_agrees(program_of(function, x), function, x)


def test_an_output_that_is_constant_is_made_anew() -> None:
    """Whoever takes it may change it."""

    def function(x: Tensor) -> list[Tensor]:
        return [torch.full((3,), 2.0), x + 1]

    x = torch.randn(3)
    program = program_of(function, x)
    program.run()
    program.outputs[0].zero_()
    assert_agrees(program, function, x)


def test_an_elementwise_result_takes_the_place_of_a_spent_argument() -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [x.exp().sin().relu()]

    x = torch.randn(50)
    with Recorder() as recorder:
        outputs = function(x)
    pool = Pool()
    program = Program(recorder, outputs, pool=pool)
    assert len(pool._storages) == 1
    assert_agrees(program, function, x)


@pytest.mark.parametrize(
    "combine",
    [
        lambda y: y[1:] - y[:-1],
        lambda y: y[:-1] - y[1:],
        lambda y: y + y[0],
        lambda y: y + y.t(),
        lambda y: y + y @ y,
        lambda y: y @ y + y,
        lambda y: y.view(torch.int32) + y,
        lambda y: torch.where(y > 0, y.flip(0), y),
    ],
    ids=["later - earlier", "earlier - later", "row", "transpose", "sum + product",
         "product + sum", "other type", "flipped"],
)  # fmt: skip
def test_a_result_never_overwrites_what_is_still_read(combine: Any) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [combine(x.sin()).cos()]

    x = torch.randn(60, 60)
    assert_agrees(program_of(function, x), function, x, exact=False)


def test_numbers_are_gathered_in_one_tensor() -> None:
    def function(x: Tensor) -> list[Tensor]:
        total = x.sum()
        return [total, torch.ones(()), total, total.view(1)[0], (total.expand(3) * x).mean(), x[0]]

    x = torch.rand(3)
    with Recorder() as recorder:
        outputs = function(x)
    program = Program(recorder, [], outputs)
    for _ in range(2):
        x.copy_(torch.rand(3))
        program.run()
        assert torch.equal(program.numbers, torch.stack(function(x)))


@pytest.mark.parametrize(("size", "calls"), [(4, 6), (3, 7)])
def test_parts_of_a_join_are_written_side_by_side(size: int, calls: int) -> None:
    """Unless a part would then lie across cache lines, where sums round otherwise."""

    def function(x: Tensor) -> list[Tensor]:
        parts = [x + 1, (x * 2).relu_(), x.t() @ x]
        joined = torch.cat([part.reshape(-1) for part in parts])
        return [*parts, joined, torch.stack(parts[:2]), joined.norm()]

    x = torch.randn(size, size)
    program = program_of(function, x)
    assert len(program) == calls
    assert_agrees(program, function, x)
    first, second, third, joined, stacked, _ = program.outputs
    # a part has one place, so that one join is by copying in any case
    together = storage_id(first) == storage_id(second) == storage_id(stacked)
    assert together == (size == 4)
    assert storage_id(third) != storage_id(joined)


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: torch.cat([a, b], 1),
        lambda a, b: torch.cat([a, b], dim=-1),
        lambda a, b: torch.cat([a, a]),
        lambda a, b: torch.cat([a.t(), b.t()]),
        lambda a, b: torch.cat([a[1:], b]),
        lambda a, b: torch.cat([a, b]).mul_(2),
    ],
    ids=["along rows", "along rows, by name", "twice", "transposed", "a part", "changed later"],
)
def test_other_joins_are_made(join: Any) -> None:
    def function(x: Tensor) -> list[Tensor]:
        a, b = x.exp(), x.cos()
        return [a, b, join(a, b), a.add(1), b.add(1)]

    x = torch.randn(4, 4)
    assert_agrees(program_of(function, x), function, x)


@pytest.mark.parametrize(
    "change", [lambda x, a: a.mul_(2), lambda x, a: torch.add(x, 1, out=a)], ids=["method", "out="]
)
def test_a_part_that_changes_after_it_is_joined_is_joined_by_a_copy(change: Any) -> None:
    def function(x: Tensor) -> list[Tensor]:
        a, b = x.exp(), x.cos()
        joined = torch.cat([a, b])
        return [joined, change(x, a)]

    x = torch.randn(16)
    assert_agrees(program_of(function, x), function, x)


def test_a_join_may_be_a_part_of_another() -> None:
    """As several actions in each state are, of several critics."""

    def function(x: Tensor) -> list[Tensor]:
        members = [torch.stack([x + 2 * n, (x * n).sin(), x.cos() - n]) for n in (1, 2)]
        return [torch.stack(members)]

    x = torch.randn(16)
    program = program_of(function, x)
    assert "stack" not in program.names
    assert_agrees(program, function, x)


def test_axes_of_size_one_may_have_any_stride() -> None:
    """As in batches of one row."""

    def function(x: Tensor) -> list[Tensor]:
        row = x.exp().as_strided((1, 3), (7, 1))
        return [(row * x.view(1, 3)).relu(), (x.view(3, 1).t().sin() + row).cos()]

    x = torch.randn(3)
    assert_agrees(program_of(function, x), function, x)


def test_outputs_that_are_joined_keep_their_memory() -> None:
    """As gradients do, whose norm is taken of all of them joined."""

    def function(x: Tensor) -> list[Tensor]:
        a, b = x.exp(), x.cos()
        norm = torch.cat([a, b]).norm()
        later = (x.sin().repeat(2) * norm + 1) * norm
        return [a, b, norm, (x * norm).exp().repeat(2) + later]

    x = torch.randn(16)
    program = program_of(function, x)
    assert "cat" not in program.names
    assert_agrees(program, function, x)


def test_products_are_accumulated_into_the_sum_they_are_added_to() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x.sin() + x @ y + y @ x]

    x, y = torch.randn(2, 30, 30)
    program = program_of(function, x, y)
    assert program.names == ["sin", "addmm", "addmm"]
    assert_agrees(program, function, x, y, exact=False)


@pytest.mark.parametrize(
    "add",
    [
        lambda x, p: p + p,
        lambda x, p: p + x.double(),
        lambda x, p: p + x[0],
        lambda x, p: p.t() + x,
        lambda x, p: torch.add(x, p, alpha=2),
        lambda x, p: (p + x) * p,
        lambda x, p: p + 1,
        lambda x, p: (p + x) + p.add_(1),
    ],
    ids=["twice", "other type", "broadcast", "transposed", "scaled", "read again", "number",
         "changed"],
)  # fmt: skip
def test_other_sums_of_products_stay_right(add: Any) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [add(x, x @ x)]

    x = torch.randn(20, 20)
    assert_agrees(program_of(function, x), function, x, exact=False)


@pytest.mark.parametrize("columns", [1, 2, 11, 16, 47, 48])
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_few_columns_go_by_their_transpose(columns: int, bias: bool) -> None:
    def function(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        return [torch.addmm(b, x, w) if bias else x @ w, (x @ w).t(), x.t() @ (x @ w)]

    inputs = torch.randn(128, 130), torch.randn(130, columns), torch.randn(columns)
    program = program_of(function, *inputs)
    turned = 1 < columns < 48 and columns % 16 != 0
    assert ("copy" in program.names or "addmm" not in program.names) if turned else True
    assert ("copy" in program.names) == turned
    expected_scale = 1e-3  # sums of 130 products
    for _ in range(2):
        for value in inputs:
            value.copy_(torch.randn(value.shape))
        program.run()
        for ours, plain in zip(program.outputs, function(*inputs), strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-4, atol=expected_scale)


def test_views_follow_results_that_are_made_anew() -> None:
    scale, shift = torch.rand(4), torch.rand(4)

    def function(x: Tensor) -> list[Tensor]:
        normal, mean, deviation = torch.native_layer_norm(x, (4,), scale, shift, 1e-5)
        return [normal.t()[1:] @ normal, normal[0].relu_(), mean, deviation]

    x = torch.rand(5, 4)
    assert_agrees(program_of(function, x), function, x)


def test_a_result_may_take_the_place_of_one_that_is_made_anew() -> None:
    def function(x: Tensor) -> list[Tensor]:
        hidden = torch.nn.functional.layer_norm(x, (4,)).relu().sin()
        return [hidden * 2, torch.nn.functional.layer_norm(hidden, (4,))]

    x = torch.rand(5, 4)
    assert_agrees(program_of(function, x), function, x)


def test_programs_read_inputs_that_they_only_return() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x.sin(), y[0]]

    x, y = torch.randn(2, 5)
    program = program_of(function, x, y)
    assert {storage_id(x), storage_id(y)} <= program.reads
    assert_agrees(program, function, x, y)


def test_nothing_but_its_own_memory_is_written_to() -> None:
    outside = torch.zeros(2)
    with pytest.raises(CaptureError, match="changes a tensor that it did not make"):
        program_of(lambda x: [outside.add_(x)], torch.ones(2))


def test_recording_loads_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from rl_training.engine.capture import Recorder\n"
        "with Recorder():\n    torch.rand(3).mul_(2)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
