"""Sections of the off-policy evaluation page: a table of each part, and what was promised of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.cells import Result, table

Results = Mapping[tuple[str, str], Result]
DOUBT = "do not trust this"
BETTER = "better than the log"
Check = tuple[str, str, str, bool]  # promise, target, measured, holds


def of_part(results: Results, part: str) -> dict[str, Result]:
    return {name: result for (kind, name), result in results.items() if kind == part}


def covers(interval: Mapping[str, Any], value: float) -> bool:
    return interval["low"] is not None and bool(interval["low"] <= value <= interval["high"])


# -- tabular ----------------------------------------------------------------------------------


def tabular_section(results: Results) -> tuple[str, list[Check]]:
    chunks = list(of_part(results, "tabular").values())
    if not chunks:
        return "Not run.", []
    truth = chunks[0]["truth"]
    near, far = ([card for chunk in chunks for card in chunk["cards"][n]] for n in ("near", "far"))
    rows, checks, logs = [], [], len(near)
    for position, estimate in enumerate(near[0]["estimates"]):
        seen = [card["estimates"][position] for card in near]
        afar = [card["estimates"][position] for card in far]
        hits = sum(covers(e, truth["near"]) for e in seen)
        far_hits = [covers(e, truth["far"]) for e in afar]
        warned = [
            card["verdict"] == DOUBT or not e["trusted"] for card, e in zip(far, afar, strict=True)
        ]
        safe = sum(hit or doubt for hit, doubt in zip(far_hits, warned, strict=True))
        rows.append(
            [
                estimate["label"],
                f"{hits} of {logs}",
                _width(seen),
                f"{sum(far_hits)} of {logs}",
                _width(afar),
                f"{safe} of {logs}",
            ]
        )
        bound = round(0.85 * logs)
        checks += [
            (
                f"{estimate['label']} covers, policy near the behaviour",
                f"{bound} of {logs}",
                f"{hits}",
                hits >= bound,
            ),
            (
                f"{estimate['label']} covers or is doubted, policy far from it",
                f"{bound} of {logs}",
                f"{safe}",
                safe >= bound,
            ),
        ]
    header = ["estimator", "near: covers", "half width", "far: covers", "half width", "or doubted"]
    text = f"""Six states, three actions, random transitions, rewards and terminations, 100 episodes a log, cut at 40 steps. The
behaviour's probabilities are in the log. By dynamic programming the behaviour is worth {truth["behaviour"]:.2f}, a policy near
it {truth["near"]:.2f} and one that prefers what the behaviour seldom does {truth["far"]:.2f}. Counts are of {logs} logs; "or doubted" counts
a log also if its card says `{DOUBT}`, or that this estimate is not trusted and has no part in the verdict.

{table(header, rows)}

Verdicts on the near policy: {_counted(near)}. On the far one: {_counted(far)}."""
    return text, checks


def _width(estimates: list[Any]) -> str:
    halves = [(e["high"] - e["low"]) / 2 for e in estimates if e["low"] is not None]
    return f"{mean(halves):.2f}" if halves else "—"


def _counted(cards: list[Any]) -> str:
    counts = Counter(card["verdict"] for card in cards)
    return ", ".join(f"`{verdict}` {count}" for verdict, count in counts.most_common())


# -- ranking ----------------------------------------------------------------------------------


def ranking_section(results: Results) -> tuple[str, list[Check]]:
    parts, checks = [], []
    cells = of_part(results, "ranking")
    for task in dict.fromkeys(name.split(": ")[0] for name in cells):
        judged = {n.split(": ")[1]: r for n, r in cells.items() if n.startswith(f"{task}: ")}
        text, held = _ranked(task, judged)
        parts.append(text)
        checks += held
    intro = """Policies of one training at several steps and of different algorithms, by their packaged configurations with
64-64 networks, judged by their modes. The true value is the mean of 200 played episodes of 1,000 steps without time limit,
gamma 0.99; the return beside it is that within the environment's limit, not discounted. `Unlike` is the share of the policy's actions that are unlike any logged one."""
    return "\n\n".join([intro, *parts]) if parts else "Not run.", checks


def _ranked(task: str, judged: Mapping[str, Result]) -> tuple[str, list[Check]]:
    order = sorted(judged.items(), key=lambda item: item[1]["truth"]["value"])
    values = [result["truth"]["value"] for _, result in order]
    returns = [result["truth"]["return"] for _, result in order]
    fitted = [_fitted(result) for _, result in order]
    estimates = [e["value"] for e in fitted]
    rows = [
        [
            f"`{name}`",
            f"{result['truth']['value']:.1f} ± {result['truth']['error']:.1f}",
            f"{result['truth']['return']:.0f}",
            f"{e['value']:.1f} ({e['low']:.1f} to {e['high']:.1f})",
            "yes" if covers(e, result["truth"]["value"]) else "no",
            f"{result['card']['support']['unlike_share']:.0%}",
            result["card"]["verdict"],
        ]
        for (name, result), e in zip(order, fitted, strict=True)
    ]
    behaviour = next(iter(judged.values()))["card"]["behaviour"]
    value, plain = spearman(estimates, values), spearman(estimates, returns)
    header = ["policy", "true value", "return", "FQE", "covers", "unlike", "verdict"]
    trusted = [
        (r, e) for (_, r), e in zip(order, fitted, strict=True) if r["card"]["verdict"] != DOUBT
    ]
    held = sum(covers(e, r["truth"]["value"]) for r, e in trusted)
    wrong = [n for n, r in judged.items() if _contradicted(r)]
    text = f"""### {task}

The log itself is worth {behaviour["value"]:.1f} ({behaviour["low"]:.1f} to {behaviour["high"]:.1f}).

{table(header, rows)}

Spearman's rank correlation of the estimates is {value:.2f} with the true values and {plain:.2f} with the returns. Of the
{len(trusted)} policies that are not doubted the interval covers the true value of {held}. Verdicts that the truth contradicts:
{", ".join(f"`{name}`" for name in wrong) or "none"}."""
    checks = [
        (f"rank correlation with true values, {task}", "0.8", f"{value:.2f}", value >= 0.8),
        (f"rank correlation with returns, {task}", "0.8", f"{plain:.2f}", plain >= 0.8),
        (f"verdicts that the truth contradicts, {task}", "0", f"{len(wrong)}", not wrong),
        (
            f"intervals that cover the true value, of policies not doubted, {task}",
            f"90 % of {len(trusted)}",
            f"{held}",
            held >= 0.9 * len(trusted),
        ),
    ]
    return text, checks


def _fitted(result: Result) -> Any:
    return next(e for e in result["card"]["estimates"] if e["name"] == "fqe")


def _contradicted(result: Result) -> bool:
    card, truth = result["card"], result["truth"]["value"]
    return bool(
        (card["verdict"] == BETTER and truth <= card["behaviour"]["value"])
        or (card["verdict"] == "worse" and truth >= card["behaviour"]["value"])
    )


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Correlate ranks; equal numbers share the mean of theirs."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: ArrayLike) -> Any:
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]


# -- d3rlpy, shuffled rewards -----------------------------------------------------------------


def d3rlpy_section(results: Results) -> tuple[str, list[Check]]:
    rows, checks = [], []
    for task, result in of_part(results, "d3rlpy").items():
        policy = result["config"]["policy"]
        name = f"{policy['algo']} " + (f"at {policy['step']}" if policy["step"] else "untrained")
        ours = results.get(("ranking", f"{task}: {name}"))
        if ours is None:
            continue
        interval, theirs = _fitted(ours), mean(result["values"])
        inside = covers(interval, theirs)
        rows.append(
            [
                f"{task}: `{name}`",
                f"{ours['truth']['value']:.1f}",
                f"{interval['value']:.1f} ({interval['low']:.1f} to {interval['high']:.1f})",
                f"{theirs:.1f}",
                ", ".join(f"{value:.1f}" for value in result["values"]),
            ]
        )
        promise = f"mean of d3rlpy's seeds is in our interval, {task}"
        bounds = f"{interval['low']:.1f} to {interval['high']:.1f}"
        checks.append((promise, bounds, f"{theirs:.1f}", inside))
    if not rows:
        return "Not run: `make .venv-bench/.installed` makes an environment with d3rlpy.", []
    one = next(iter(of_part(results, "d3rlpy").values()))
    header = ["policy", "true value", "ours", "d3rlpy, mean", "d3rlpy, each seed"]
    text = f"""d3rlpy {one["d3rlpy"]} fits its own FQE to the same log, for a policy that takes exactly our actions: its
networks and updates, on batches that we draw (its own sampling is several times as slow). 128-128 networks, batches of 256, learning rate 0.001, {one["config"]["updates"]:,} updates, a copy into the target every 20 (at its default of 100, and of
0.0001 for the learning rate, a horizon of 100 steps needs far more updates).

{table(header, rows)}"""
    return text, checks


def shuffled_section(results: Results) -> tuple[str, list[Check]]:
    cells = of_part(results, "shuffled")
    if not cells:
        return "Not run.", []
    rows = []
    for name, result in cells.items():
        fitted, behaviour = _fitted(result), result["card"]["behaviour"]
        truth = result.get("truth")
        rows.append(
            [
                name.replace(", judged on ", " | "),
                f"{behaviour['value']:.1f}",
                "—" if truth is None else f"{truth['value']:.1f} ± {truth['error']:.1f}",
                f"{fitted['value']:.1f} ({fitted['low']:.1f} to {fitted['high']:.1f})",
                f"{result['card']['support']['unlike_share']:.0%}",
                result["card"]["verdict"],
            ]
        )
    header = ["policy", "judged on", "the log", "true value", "FQE", "unlike", "verdict"]
    text = f"""Rewards of `pendulum/mixed-v0`, and of the expert's log `pendulum/expert-v0`, were shuffled over all rows, and policies
trained on what remained. With these rewards every policy has the same value, so that none is better on the log that misled
it. On the true mixed log such a policy is one that clones the behaviour without its noise, which may be an improvement: the
true value tells. The expert cannot be improved on by cloning.

{table(header, rows)}"""
    return text, _shuffled_checks(cells, of_part(results, "ranking"))


def _shuffled_checks(cells: Mapping[str, Result], ranked: Mapping[str, Result]) -> list[Check]:
    untrained = {name for name in cells if "untrained" in name}
    better = {name for name, r in cells.items() if r["card"]["verdict"] == BETTER}
    misled = {name for name in better - untrained if "the shuffled log" in name}
    on_true = better - untrained - misled
    of_expert = {name for name in on_true if "expert" in name}
    false = [name for name in on_true if _contradicted(cells[name])]
    fresh = [cells[name] for name in untrained if "the true log" in name]
    fresh += [result for name, result in ranked.items() if "untrained" in name]
    good = sum(result["card"]["verdict"] in ("worse", DOUBT) for result in fresh)
    equal = [r for name, r in cells.items() if "the shuffled log" in name]
    held = sum(covers(_fitted(r), r["card"]["behaviour"]["value"]) for r in equal)
    return [
        (
            "policies of shuffled rewards called better on the shuffled log",
            "0",
            f"{len(misled)}",
            not misled,
        ),
        (
            "policies of shuffled rewards called better on the true log of an expert",
            "0",
            f"{len(of_expert)}",
            not of_expert,
        ),
        (
            "policies of shuffled rewards called better on the true mixed log",
            "0",
            f"{len(on_true - of_expert)}",
            not on_true - of_expert,
        ),
        (
            "policies of shuffled rewards called better that are not",
            "0",
            f"{len(false)}",
            not false,
        ),
        (
            "intervals on the shuffled log that cover its own value, which all policies have there",
            f"90 % of {len(equal)}",
            f"{held}",
            held >= 0.9 * len(equal),
        ),
        (
            "untrained policies called better, on any log",
            "0",
            f"{len(better & untrained)}",
            not better & untrained,
        ),
        (
            f"untrained policies called `worse` or `{DOUBT}`, on logs with their rewards",
            f"{len(fresh)}",
            f"{good}",
            good == len(fresh),
        ),
    ]
