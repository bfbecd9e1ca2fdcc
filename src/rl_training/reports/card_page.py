"""Page of a score card: the verdict on a policy, its reasons, and the pictures behind them.

Takes the card as it is written to JSON; keys that this page does not know are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.reports.pages import charts
from rl_training.reports.pages.charts import IntervalRow
from rl_training.reports.pages.drawing import Chart
from rl_training.reports.pages.page import check_page_packages, write_page
from rl_training.runs.layout import check_output_dir

Card = Mapping[str, Any]

_DIMENSIONS = 12  # of actions that are drawn
_TONES = {"better than the log": "good", "worse": "bad", "do not trust this": "care"}


def check_card(path: str | Path) -> None:
    """Refuse a page that could not be written, before the work that it is about."""
    check_page_packages()
    check_output_dir(Path(path).parent, name="--html")


def write_card(card: Card, path: str | Path) -> Path:
    """Write the score card as one self-contained HTML file."""
    check_page_packages()
    policy = card["policy"]
    applicable = [entry for entry in card["estimates"] if entry["applies"]]
    return write_page(
        path,
        "card.html",
        title=f"Score card of {policy['algo']}: {card['verdict']}",
        tone=_TONES.get(card["verdict"], "plain"),
        card=card,
        facts=_facts(card),
        estimates=_estimates_chart(card),
        applicable=applicable,
        untrusted=any(not entry.get("trusted", True) for entry in applicable),
        inapplicable=_inapplicable(card["estimates"]),
        pictures=_pictures(card.get("pictures") or {}),
    )


def _inapplicable(estimates: Sequence[Card]) -> dict[str, str]:
    """Reasons why estimators do not apply, each with the estimators that it is about."""
    labels: dict[str, list[str]] = {}
    for entry in estimates:
        if not entry["applies"]:
            labels.setdefault(str(entry["reason"]), []).append(entry["label"])
    return {reason: ", ".join(names) for reason, names in labels.items()}


def _facts(card: Card) -> list[tuple[str, Any]]:
    policy, log, support = card["policy"], card["log"], card.get("support") or {}
    spread = [log.get("return_mean"), log.get("return_std")]
    facts: list[tuple[str, Any]] = [
        ("policy", policy["path"]),
        ("algorithm", f"{policy['algo']}, acts {_acting(policy)}"),
        ("log", log["source"]),
        ("transitions", log.get("rows")),
        ("episodes", log.get("episodes")),
        ("episodes cut off", log.get("cut_episodes")),
        ("mean return of the log, undiscounted", spread[0]),
        ("standard deviation of returns", spread[1]),
        ("discount factor", card["gamma"]),
    ]
    if (share := support.get("unlike_share")) is not None:
        facts.append(("policy actions unlike any logged one", f"{100 * share:.3g} %"))
    if (distance := support.get("action_distance")) is not None:
        facts.append(("mean distance to logged actions", distance))
    model = card.get("behaviour_model")
    if model:
        source = "from the log" if model.get("source") == "log" else "from a fitted behaviour model"
        facts.append(("behaviour probabilities", source))
        for name, value in (model.get("calibration") or {}).items():
            facts.append((f"calibration: {str(name).replace('_', ' ')}", value))
    return [(name, value) for name, value in facts if value is not None]


def _acting(policy: Card) -> str:
    how = "deterministically" if policy.get("acts") == "deterministic" else "by sampling"
    return f"{how}; was trained on this log" if policy.get("trained_on_this_log") else how


def _estimates_chart(card: Card) -> Chart:
    behaviour = card["behaviour"]
    rows = [_row("the log itself", behaviour)]
    rows += [
        _row(entry["label"], entry, number if entry.get("trusted", True) else -1)
        for number, entry in enumerate(card["estimates"], start=1)
        if entry["applies"]
    ]
    return charts.intervals(
        f"Value of the policy by each estimator, with {100 * card['confidence']:.3g} % intervals",
        rows,
        x_title="discounted return from first states",
        reference=behaviour.get("value"),
    )


def _row(label: str, entry: Card, colour: int = 0) -> IntervalRow:
    value, low, high = (entry.get(name) for name in ("value", "low", "high"))
    return IntervalRow(label, value, low, high, colour=colour)


def _pictures(pictures: Card) -> list[Chart]:
    result = []
    values, returns = pictures.get("policy_values"), pictures.get("behaviour_returns")
    if values or returns:
        samples = [("log: return of each episode", returns or [])]
        samples += [("policy: estimate at each initial state", values or [])]
        title = "Values of the log and of the policy"
        result.append(charts.histograms(title, samples, x_title="discounted return"))
    if weights := pictures.get("log10_weights"):
        samples, axis = [("episodes", weights)], "log10 of the weight; 0 is a weight of 1"
        title = "Importance weights"
        result.append(charts.histograms(title, samples, x_title=axis, means=False))
    result += _actions(pictures.get("actions") or {})
    episodes = pictures.get("episodes") or {}
    if episodes.get("log") and episodes.get("policy"):
        result.append(
            charts.scatter(
                "Contribution of each episode; above the line the policy is judged better",
                episodes["log"],
                episodes["policy"],
                x_title="log: return of the episode",
                y_title="policy: estimate",
                diagonal=True,
            )
        )
    return result


def _actions(actions: Card) -> list[Chart]:
    log, policy = actions.get("log") or [], actions.get("policy") or []
    if actions.get("kind") == "discrete":
        categories = [str(choice) for choice in range(max(len(log), len(policy)))]
        samples: Sequence[tuple[str, Any]] = [("log", log), ("policy", policy)]
        title = "Actions of the log and of the policy"
        axes = {"x_title": "action", "y_title": "share"}
        return [charts.grouped_bars(title, categories, samples, **axes)]
    pairs = list(zip(log, policy, strict=False))[:_DIMENSIONS]
    return [
        charts.histograms(
            f"Actions, dimension {number}" if len(pairs) > 1 else "Actions",
            [("log", logged), ("policy", chosen)],
            x_title="action",
        )
        for number, (logged, chosen) in enumerate(pairs)
    ]
