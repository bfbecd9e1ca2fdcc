"""Every second of a run belongs to one span, over all of its resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.runtime import Callback, TrainerState, resume, train
from rl_training.runtime.evaluation.evaluator import Evaluator
from rl_training.runtime.loop import timing
from rl_training.runtime.loop.timing import SPANS, Spans
from tests.support.runs import Killed, killed_run


class Clock:
    """Moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "perf_counter", clock)
    return clock


def test_a_second_is_counted_once_also_inside_another_span(clock: Clock) -> None:
    time = Spans()
    clock.now += 1  # before the start
    time.start()
    clock.now += 2
    with time("checkpoint"):
        clock.now += 4
        with time("log"):
            clock.now += 8
        clock.now += 16
        assert time.totals()["checkpoint"] == 20  # what is open counts as far as it has come
        clock.now += 32
    clock.now += 64
    time.lap("update")
    expected = dict.fromkeys(SPANS, 0.0) | {"other": 2, "log": 8, "checkpoint": 52, "update": 64}
    assert time.totals() == expected


def test_a_span_that_fails_is_closed(clock: Clock) -> None:
    time = Spans()

    def fail() -> None:
        with time("evaluate"):
            clock.now += 3
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    clock.now += 5
    assert (time.totals()["evaluate"], time.totals()["other"]) == (3, 5)


def test_rows_have_what_passed_since_the_last_and_totals_go_on(clock: Clock) -> None:
    first = Spans()
    clock.now += 1
    first.lap("update")
    assert first.row()["time/update_seconds"] == 1
    clock.now += 2
    first.lap("update")
    second = Spans()
    second.load(first.totals())
    second.start()
    clock.now += 4
    second.lap("update")
    assert second.row() == {f"time/{span}_seconds": 4 * (span == "update") for span in SPANS}
    assert second.totals()["update"] == 7


def result_of(run_dir: Path) -> Any:
    return json.loads((run_dir / "result.json").read_text())


class Sleepless(Callback):
    """Every update takes a second of a clock that stands still otherwise."""

    def __init__(self, clock: Clock, kill_at: int | None = None) -> None:
        self.clock, self.kill_at = clock, kill_at

    def on_train_start(self, state: TrainerState) -> None:
        update = state.algorithm.update

        def slow(batch: Any) -> Any:
            self.clock.now += 1
            return update(batch)

        state.algorithm.update = slow

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.update_count == self.kill_at:
            raise Killed


def test_totals_of_a_resumed_run_are_those_of_the_whole(
    pendulum_config: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Evaluator.run

    def slow(self: Evaluator, *args: Any, **options: Any) -> Any:
        clock.now += 10
        return run(self, *args, **options)

    monkeypatch.setattr(Evaluator, "run", slow)
    config = pendulum_config()
    with pytest.raises(Killed):
        train(config, callbacks=[Sleepless(clock, kill_at=27)])
    (run_dir,) = Path(config.output_dir).glob("*")
    resume(run_dir, callbacks=[Sleepless(clock)])
    seconds = result_of(run_dir)["seconds"]
    # 40 updates, of which 21 to 27 were made twice and count once; evaluations at 15, 30 and 40
    assert seconds == dict.fromkeys(SPANS, 0.0) | {"update": 40, "evaluate": 30}
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    logged = [row["time/update_seconds"] for row in rows if "time/update_seconds" in row]
    assert logged == [7, 7, 1, 7, 7, 5]  # the third since the resume at 20


@pytest.mark.parametrize("algo", ["td3_bc", "sac"])
def test_a_run_says_where_its_time_went(algo: str, pendulum_config: Any) -> None:
    result = train(pendulum_config(algo))
    seconds = result_of(result.run_dir)["seconds"]
    assert set(seconds) == set(SPANS)
    spent = {span for span, value in seconds.items() if value > 0}
    assert spent == set(SPANS) - ({"collect"} if algo == "td3_bc" else set())


def test_a_checkpoint_without_times_is_resumed(pendulum_config: Any) -> None:
    """Those of earlier versions have none."""
    run_dir = killed_run(pendulum_config(), 25)
    manifest = run_dir / "checkpoints" / "step_20" / "manifest.json"
    content = json.loads(manifest.read_text())
    del content["seconds"]
    manifest.write_text(json.dumps(content))
    assert resume(run_dir).stop_reason == "total_timesteps"
