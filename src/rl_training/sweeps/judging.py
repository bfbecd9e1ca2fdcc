"""Score cards of a search's runs: each policy is judged by the log, and its card lies in its run directory."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_training.files import read_json, read_regular, sha256_of, write_json
from rl_training.ope.fitted_q import FitOptions
from rl_training.ope.judging import judge
from rl_training.runs.layout import RESULT
from rl_training.sweeps.executor import Judging

log = logging.getLogger("rl_training")
CARD = "score_card.json"
_MAX_BYTES = 4 << 20


def judge_run(run_dir: Path, judging: Judging) -> None:
    """Judge the last policy of a run, unless it was judged in the same way before."""
    if is_judged(run_dir, judging):
        return
    log.info("judging the policy by %s", judging.dataset)
    card = judge(
        run_dir,
        judging.dataset,
        gamma=judging.gamma,
        held_out=judging.held_out,
        options=FitOptions(updates=judging.updates),
        output_dir=judging.output_dir,
    ).as_dict()
    del card["pictures"]
    write_json(run_dir / CARD, {"judging": _identity(run_dir, judging), "card": card})


def is_judged(run_dir: Path, judging: Judging) -> bool:
    """Tell if a run has the card that this judging makes."""
    return _read(run_dir).get("judging") == _identity(run_dir, judging)


def judged_value(run_dir: Path) -> tuple[float | None, str]:
    """Return the value by fitted Q evaluation; None and the reason if there is none that may be trusted."""
    card = _read(run_dir).get("card")
    if not isinstance(card, dict):
        return None, "it has no score card"
    reasons, estimates = card.get("reasons"), card.get("estimates")
    first = (
        str(reasons[0]) if isinstance(reasons, list) and reasons else "the card does not say why"
    )
    if card.get("verdict") == "do not trust this":
        return None, first
    for entry in estimates if isinstance(estimates, list) else []:
        if isinstance(entry, dict) and entry.get("name") == "fqe":
            value = entry.get("value")
            if entry.get("trusted") is True and isinstance(value, float):
                return value, ""
            return None, str(entry.get("reason") or first)
    return None, "its score card has no estimate by fitted Q evaluation"


def _read(run_dir: Path) -> dict[str, Any]:
    try:
        values = read_json(run_dir / CARD, limit=_MAX_BYTES)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _identity(run_dir: Path, judging: Judging) -> dict[str, Any]:
    """Return what the card depends on: how the run is judged, and that it is this end of the run."""
    try:
        end = sha256_of(read_regular(run_dir / RESULT))
    except OSError:
        end = ""
    how = {key: value for key, value in asdict(judging).items() if key != "output_dir"}
    return {**how, "result": end}
