"""The page that publishes a whole run: docs/benchmarks/speed.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cells import table
from benchmarks.speed.goals import REASONS
from benchmarks.speed.parts import KINDS
from benchmarks.speed.report import Row, bound, distance, has_goal, peer, summary, verdict
from benchmarks.speed.timing import TURN

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "speed.md"
Result = dict[str, Any]

METHOD = """\
Every row is the time of this package divided by that of a peer for the same work: lower is better,
except in the rows marked "at least". `keep` is what a row has to keep, `aim` what would be good; rows
without them are there to be read.
"ours" and "theirs" are CPU microseconds, the medians of all rounds; the ratio is the median of the ratios
of single rounds, with their quartiles. Absolute times move by a third from hour to hour on a shared
machine, and ratios inside a round much less, so compare ratios. Where the machine is busy or its interpreter is
slow they are smaller, since the peers spend more of their time in Python: this page's rows are from a quiet machine
if its load below is about 1.

- **Work**: one gradient update with the drawing of its batch, from {transitions:,} random transitions in
  memory, observations of 17 numbers, actions of 6, networks of 256-256 with ReLU, batches of 256. Both
  sides have the same algorithm, update frequencies, numbers of critics and of draws.
- **Turns**: all sides are in one process and take turns of about {turn:g} s of CPU time, after a warm-up and in
  an order that changes. A round is {seconds:g} s of each; there are {rounds}. Compiling and loading are left out.
- **One thread** for PyTorch, the BLAS of NumPy, and XLA. Time is CPU time of the process, so waiting for
  another program does not count, and a second thread would.
- Our side is the training loop itself with the default engine, without logging and evaluation; theirs is
  their own code, unchanged, without their logging."""

GAINS = """\
Time of an update with all parts, divided by its time without this one, in turns in one process. Below 1.00 is a gain.

{table}

Products are narrow where a network has few inputs or outputs: here 6 actions and, in the first layer of the actor, 17
observations. Every column is one build of each variant, and where its memory happens to lie moves an update by up to
5 %: read what all columns agree on."""

ROWS_MEAN = """\
- **CORL**: its trainers, from a checkout. AWAC and CQL have three hidden layers in its classes; the third
  is taken out. It normalises observations before training, where we do it when a batch is drawn.
- **d3rlpy**: `update` on a batch of its own buffer, which is gathered row by row in Python. CRR has two
  critics and four draws on both sides.
- **Stable-Baselines3** and **sb3-contrib**: `train` on a full replay, all updates of a turn in one call,
  which leaves out what `learn` spends on each. TQC has two critics of 25 quantiles. With ten critics ours is
  REDQ with one update per step and the least of all ten targets; its actor follows the mean of the critics,
  theirs the least.
- **CleanRL**: the statements of its scripts that train, from a checkout. SAC with `policy_frequency` 1, as
  its default makes two updates of the actor in every second step. It draws actions once more for the
  temperature.
- **JAX**: a twin of our update in plain `jax.numpy`, in this repository: `jit` of a `lax.scan` over updates
  that draws indices and noise inside. `make bench BENCH_ARGS=--check` compares gradients and targets with
  ours. ReBRAC's critics are normalised after ReLU. CRR has two critics and four draws, and copies its targets
  at every hundredth update. RLPD has ten normalised critics, half of each batch from the log, and one update
  of the actor for twenty of the critics. It learns from observations as they are, where ours are normalised for TD3+BC.
- **Per environment step**: both public calls (`train` and `learn`) on the same environment, one update per
  step; the environment itself reads the clock at its 200th and last steps. DQN has 64-64 networks and
  batches of 64, and is not double.
- **`predict`**: one observation to one action, on both sides of a deterministic policy of 256-256; ours
  also normalises.
- **The FLOP limit**: the arithmetic that an update needs (TD3+BC {td3:.0f} MFLOP, SAC {sac:.0f}) divided by its time,
  as a share of the rate of a product of two 256 x 256 matrices timed in the same rounds{gemm}.
- **Two seeds**: two processes with TD3+BC beside one that runs alone, by wall-clock time: the only row in
  which another load on the machine counts.{cpu_gain}"""


def page_text(result: Result) -> str:
    rows: list[Row] = result["rows"]
    parts = [
        "# Speed benchmark",
        "<!-- not run: it installs other libraries, runs for up to half an hour, and writes this page -->\n"
        "```bash\n"
        'make bench BENCH_ARGS="--corl PATH --cleanrl PATH"   # checkouts; without them these rows stay empty\n'
        'make bench BENCH_ARGS="--quick --only sac"           # a few rows, roughly\n'
        "```",
        METHOD.format(**result, turn=TURN),
        _rows_table(rows),
        f"{summary(rows)}.",
        "## Rows above their goal",
        _above(rows),
        "## What our update is made of",
        _parts(result["parts"], rows, _gemm(result)),
        "## What each part of the engine gains",
        _gains(result.get("gains", []), rows),
        "## What the rows compare",
        ROWS_MEAN.format(**result["mflop"], gemm=_in_brackets(result), cpu_gain=_cpu_gain(rows)),
        "## Scale",
        _scale(result["scale"]),
        "## Machine",
        _machine(result),
    ]
    return "\n\n".join(parts) + "\n"


def _rows_table(rows: Sequence[Row]) -> str:
    header = [
        "case", "against", "ours", "theirs", "ratio", "quartiles", "keep", "aim", "within", "to the aim"
    ]  # fmt: skip
    return table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    goals = ["—", "—"]
    if has_goal(row):
        goals = [bound(row, which).removeprefix("at most ") for which in ("keep", "aim")]
    if "not_measured" in row:
        return [row["title"], peer(row), "—", "—", "not measured", "—", *goals, "—", "—"]
    low, high = row["quartiles"]
    judged = ["—", "—"]
    if has_goal(row):
        judged = [verdict(row).replace("missed", "**no**"), distance(row)]
    return [
        row["title"],
        peer(row),
        f"{median(row['ours_us']):,.0f}",
        f"{median(row['theirs_us']):,.0f}",
        f"{row['ratio']:.3f}",
        f"{low:.3f} to {high:.3f}",
        *goals,
        *judged,
    ]


def _above(rows: Sequence[Row]) -> str:
    """Rows that miss their `keep`, with the reason as it is written in goals.py."""
    lines = []
    for row in rows:
        if "not_measured" in row:
            lines.append(
                f"- {row['title']} against {peer(row)} was not measured: {row['not_measured']}."
            )
        elif has_goal(row) and not row["within_keep"]:
            reason = REASONS.get(row["id"], "No reason is written down yet.")
            lines.append(
                f"- {row['title']} against {peer(row)}: {row['ratio']:.3f} where {bound(row, 'keep')} "
                f"is wanted. {reason}"
            )
    if not lines:
        return "None: every row was measured, and those with a goal are within their `keep`."
    return "Reasons are kept in `REASONS` of `benchmarks/speed/goals.py`.\n\n" + "\n".join(lines)


PARTS = """\
Shares of the time of our update, by timing each of its recorded operations: products of matrices and of matrices
with vectors, which no library can leave out; layer normalisation; every other operation of losses, gradients and
activations; and the rest, i.e. drawing batches and noise, Adam, targets, and Python. "GFLOP/s" is the rate of the
products; a product of two 256 x 256 matrices alone ran at {gemm}. "Least ratio" is what a ratio above would be if
everything but products and normalisation were free: where it is above a row's `keep`, only faster products help.

{table}"""


def _parts(parts: Sequence[dict[str, Any]], rows: Sequence[Row], gemm: str = "") -> str:
    if not parts:
        return "Not measured."
    header = ["update", "us", *KINDS, "GFLOP/s", "least ratio"]
    lines = []
    for part in parts:
        shares = part["shares"]
        bounded = shares["products"] + shares["normalisation"]
        own = [
            row for row in rows if row["id"].startswith(f"{part['contest']}/") and "ratio" in row
        ]
        least = [f"{peer(row)} {row['ratio'] * bounded:.2f}" for row in own if not row["at_least"]]
        title = own[0]["title"] if own else part["contest"]
        cells = [f"{shares[kind]:.2f}" for kind in KINDS]
        rate = f"{part['gflop_per_second']:.0f}"
        lines.append([title, f"{part['us']:,.0f}", *cells, rate, ", ".join(least) or "—"])
    return PARTS.format(table=table(header, lines), gemm=gemm or "a rate that was not measured")


def _gains(gains: Sequence[dict[str, Any]], rows: Sequence[Row]) -> str:
    if not gains:
        return "Not measured."
    titles = {row["id"].partition("/")[0]: row["title"] for row in rows}
    header = ["part", *(titles.get(row["contest"], row["contest"]) for row in gains)]
    lines = [[part, *(f"{row['gains'][part]:.2f}" for row in gains)] for part in gains[0]["gains"]]
    return GAINS.format(table=table(header, lines))


def _gemm(result: Result) -> str:
    rate = result["gemm_gflop_per_second"]
    return "" if rate is None else f"{rate:.0f} GFLOP/s"


def _in_brackets(result: Result) -> str:
    rate = _gemm(result)
    return f" ({rate})" if rate else ""


def _cpu_gain(rows: Sequence[Row]) -> str:
    gains = [row["cpu_gain"] for row in rows if "cpu_gain" in row]
    return f" By CPU time, which leaves it out, it is {gains[0]:.2f}." if gains else ""


def _scale(scale: Any) -> str:
    if "not_measured" in scale:
        return f"Not measured: {scale['not_measured']}."
    return f"{_data(scale['data'])}\n\n{_growth(scale)}"


def _data(data: dict[str, Any]) -> str:
    header = ["transitions", "size", "where", "CPU us per update", "updates per CPU second"]
    rows = [
        [
            f"{row['transitions']:,}",
            f"{row['gigabytes'] * 1000:,.1f} MB",
            "mapped file" if row["mapped"] else "memory",
            f"{row['us']:,.0f}",
            f"{1e6 / row['us']:,.0f}",
        ]
        for row in data["sizes"]
    ]
    failure = data["held_in_memory"]
    return DATA.format(
        limit=data["limit"] / 1e6,
        own=data["memory"]["own"] / 1e6,
        opening=data["sizes"][-1]["opening_seconds"],
        unmapped=f"ends in `{failure['error']}` for lack of memory" if failure else "fits",
        table=table(header, rows),
    )


DATA = """\
TD3+BC as above by the size of its data, with observations of 3 numbers and actions of 1: a row takes 40
bytes. From 10,000,000 transitions on, the data is a file that is mapped (`dataset_in_memory: false`). All of
this is one process, which may not hold more than {limit:,.0f} MB of its own (`RLIMIT_DATA`) and holds {own:,.0f} MB in
the end. It packs and opens the largest file in {opening:,.0f} s; reading that file into memory instead {unmapped}.
The system's cache has the mapped pages here; where it does not, a batch waits for up to 256 reads.

{table}"""

GROWTH = {
    "batch": ("TD3+BC by batch", "us per transition"),
    "members": ("REDQ with one update per step, by critics", "us per critic"),
    "width": ("TD3+BC by width of both hidden layers", "us per unit of width"),
}


def _growth(scale: dict[str, Any]) -> str:
    text = (
        "Cost follows the arithmetic that is asked for: linear in batch and critics, and from linear to\n"
        "quadratic in width. A fixed part per update shows where networks or batches are small."
    )
    for kind, (title, per_value) in GROWTH.items():
        rows = [
            [
                f"{row['value']:,}",
                f"{row['us']:,.0f}",
                f"{row['us'] / row['value']:,.1f}",
                f"{row['mflop']:,.0f}",
                f"{row['gflop_per_second']:.0f}",
            ]
            for row in scale[kind]
        ]
        text += f"\n\n{table([title, 'CPU us per update', per_value, 'MFLOP', 'GFLOP/s'], rows)}"
    return text


def _machine(result: Result) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    commits = ", ".join(f"{name} {commit}" for name, commit in result["commits"].items())
    return (
        f"{result['cpu']}, {result['cores']} cores, load {result['load_average']:.1f} when it ended. "
        f"{versions}. Commits: {commits}. The run took {result['minutes']:.0f} minutes."
        + _measured_again(result.get("again"))
    )


def _measured_again(again: dict[str, Any] | None) -> str:
    """Name rows that were measured after the whole run, because the machine was busy in it."""
    if again is None:
        return ""
    rows = ", ".join(again["rows"])
    return f" Measured again later, with a load of {again['load']:.1f} at the end: {rows}."
