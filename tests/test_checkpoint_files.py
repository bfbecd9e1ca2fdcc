"""Checkpoints on disk: damage is noticed, links lead nowhere, and a crash costs nothing saved."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import api
from rl_training.config import CheckpointError, OutputError
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.runs.layout import step_directories
from rl_training.runs.lock import RunLock
from rl_training.runtime import Callback, TrainConfig, TrainerState, resume, train
from rl_training.runtime.checkpoints import directories
from rl_training.runtime.checkpoints.format import (
    Contents,
    read_checkpoint,
    write_checkpoint,
)
from rl_training.runtime.checkpoints.manifest import read_manifest, sealed
from rl_training.runtime.checkpoints.segments import blocks
from tests.support.runs import assert_same_run, killed_run


@pytest.fixture
def online_config(tmp_path: Path) -> Any:
    def build(**changes: Any) -> TrainConfig:
        values: dict[str, Any] = {
            "algo": "td3", "env_id": "Pendulum-v1", "total_timesteps": 60, "eval_episodes": 1,
            "checkpoint_interval": 20, "log_interval": 20, "output_dir": str(tmp_path / "runs"),
            "env_kwargs": {"max_episode_steps": 15},
            "algo_kwargs": {
                "hidden_sizes": [8], "batch_size": 8, "learning_starts": 10, "eval_interval": 30,
            },
        }  # fmt: skip
        return TrainConfig(**{**values, **changes})

    return build


@pytest.fixture
def finished(online_config: Any) -> Path:
    return train(online_config()).run_dir


# -- damage -----------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_manifest_is_noticed(finished: Path) -> None:
    path = finished / "checkpoints" / "step_60" / "manifest.json"
    content = path.read_bytes()
    for position in range(0, 8 * len(content), 97):  # coprime to 8: every bit of a byte comes up
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"damaged|newer version"):
            read_manifest(path.parent)
    path.write_bytes(content)
    assert read_manifest(path.parent)["schema"] == 2


@pytest.mark.parametrize(
    "name", ["model.safetensors", "state.safetensors", "replay", "manifest.json"]
)
def test_resume_falls_back_to_the_newest_intact_checkpoint_and_says_so(
    name: str, online_config: Any, finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = train(online_config()).run_dir
    newest = finished / "checkpoints" / "step_60"
    path = newest / name
    if path.is_dir():
        (path,) = path.iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.unlink()  # segments are hard links: the older checkpoint's must stay as they are
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "rl_training"):
        result = resume(finished)
    assert f"{path.name} does not match its checksum" in caplog.text
    assert "going on from step 40 instead: 20 steps are trained again" in caplog.text
    assert result.run_dir == finished
    assert (finished / "checkpoints" / "damaged-step_60").is_dir()
    assert_same_run(whole, finished)


def test_a_checkpoint_that_is_named_is_not_replaced_by_another(finished: Path) -> None:
    step = finished / "checkpoints" / "step_60"
    (step / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"model.safetensors is missing; an earlier one: .*40"
    ):
        resume(step)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        api.predict(finished, [1.0, 0.0, 0.0])


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{" * 200_000, b'{"resumed": 3}'])
def test_damaged_metadata_stops_nobody(content: bytes, finished: Path) -> None:
    (finished / "metadata.json").write_bytes(content)
    assert resume(finished, total_timesteps=70).run_dir == finished
    assert len(json.loads((finished / "metadata.json").read_text())["resumed"]) == 1


# -- links and special files --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "state.safetensors"])
@pytest.mark.parametrize("kind", ["fifo", "zero", "link", "directory", "sparse"])
def test_only_regular_files_of_their_size_are_read(name: str, kind: str, finished: Path) -> None:
    path = finished / "checkpoints" / "step_60" / name
    moved = finished / "moved"
    path.rename(moved)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "link":
        path.symlink_to(moved)
    elif kind == "directory":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 2**40)
    with pytest.raises(CheckpointError, match=r"link|regular|bytes|directory"):
        resume(path.parent)


@pytest.mark.parametrize(
    "name", [".lock", ".lock.pid", "metrics.jsonl", "result.json", "config.yaml"]
)
def test_resume_leaves_alone_what_a_link_in_the_run_points_to(
    name: str, finished: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (finished / name).unlink(missing_ok=True)
    (finished / name).symlink_to(victim)
    with suppress(CheckpointError, OutputError):
        resume(finished, total_timesteps=70)
    assert victim.read_text() == "precious\n"


def test_a_link_to_a_step_of_another_run_is_not_followed(
    finished: Path, online_config: Any
) -> None:
    precious = train(online_config(seed=5)).run_dir
    before = {path.name for path in (precious / "checkpoints").iterdir()}
    (finished / "checkpoints" / "step_900").symlink_to(precious / "checkpoints" / "step_60")
    assert resume(finished, total_timesteps=80).run_dir == finished
    link = finished / "checkpoints" / "best"
    link.unlink()
    link.symlink_to(precious / "checkpoints" / "step_60")
    with pytest.raises(CheckpointError, match="leads out of its run"):
        resume(link, total_timesteps=80)
    assert {path.name for path in (precious / "checkpoints").iterdir()} == before


@pytest.mark.parametrize(
    "name", ["../../../secret.safetensors", "/etc/passwd", "extra.safetensors"]
)
def test_a_manifest_cannot_name_files_of_its_own_choice(name: str, finished: Path) -> None:
    path = finished / "checkpoints" / "step_60" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = manifest["files"]["model.safetensors"]
    path.write_bytes(sealed(manifest))
    with pytest.raises(CheckpointError, match="is not a file of a checkpoint"):
        resume(path.parent)


def test_checkpoints_on_another_disk_go_on_in_their_run(online_config: Any, tmp_path: Path) -> None:
    whole = train(online_config()).run_dir
    run_dir = killed_run(online_config(), 25)
    shutil.move(run_dir / "checkpoints", tmp_path / "disk" / "of_this_run")
    (run_dir / "checkpoints").symlink_to(tmp_path / "disk" / "of_this_run")
    assert resume(run_dir).run_dir == run_dir
    assert_same_run(whole, run_dir)


# -- crashes ----------------------------------------------------------------------------------


def test_last_is_mended_though_the_run_is_complete(finished: Path) -> None:
    directories.point(finished / "checkpoints", "last", 40)  # killed before the link was set
    resume(finished)
    assert (finished / "checkpoints" / "last").readlink() == Path("step_60")


def test_saving_a_step_again_never_loses_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash at each of the renames that replace a checkpoint by one of the same step."""
    step = finished / "checkpoints" / "step_60"
    before = read_checkpoint(step)
    contents = Contents(before.manifest, before.tensors)
    for number in range(2):
        calls = iter(range(9))
        rename = Path.rename

        def crash(path: Path, target: Path, calls: Any = calls, number: int = number) -> Path:
            if next(calls) == number:
                raise KeyboardInterrupt
            return rename(path, target)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", crash)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a kill tidies nothing
            with pytest.raises(KeyboardInterrupt):
                write_checkpoint(step, contents)
        directories.mend(step.parent)
        assert read_checkpoint(step).manifest["progress"] == before.manifest["progress"]
        assert not [path for path in step.parent.iterdir() if path.name.startswith(".")]


def test_mending_deletes_nothing_that_a_save_does_not_make(finished: Path) -> None:
    names = [".notes.tmp", ".step_5.tmp", ".step_x.1.tmp", ".last.old", ".step_7.12.bak"]
    for name in names:
        (finished / "checkpoints" / name).write_text("mine")
    resume(finished, total_timesteps=70)
    assert all((finished / "checkpoints" / name).read_text() == "mine" for name in names)


def test_a_run_that_is_still_training_is_not_resumed_as_a_copy(
    online_config: Any, tmp_path: Path
) -> None:
    """The second process looks while a checkpoint appears: it must meet the lock, not branch."""
    errors: list[BaseException] = []

    class ResumeMeanwhile(Callback):
        def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
            if state.global_step in (25, 45):
                thread = threading.Thread(target=try_resume, args=(state.run_dir,))
                thread.start()
                thread.join()

    def try_resume(run_dir: Path) -> None:
        for path in (
            run_dir,
            run_dir / "checkpoints",
            step_directories(run_dir / "checkpoints")[-1],
        ):
            try:
                resume(path)
            except OutputError as error:
                errors.append(error)

    train(online_config(), callbacks=[ResumeMeanwhile()])
    assert len(errors) == 6
    assert all("is being trained by process" in str(error) for error in errors)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_lock_is_free_after_a_resume_that_was_refused(finished: Path) -> None:
    with pytest.raises(Exception, match=r"total_timesteps"):
        resume(finished, total_timesteps=-5)
    with RunLock(finished):
        pass


# -- replay in segments -------------------------------------------------------------------------


def rows_of(buffer: ReplayBuffer, count: int) -> None:
    rows = buffer.new_rows(count)
    rows[:] = torch.randn(count, buffer.layout.width).numpy()
    rows[:, buffer.layout.termination] = rows[:, buffer.layout.truncation] = 0
    for row in rows:
        buffer.add_rows(row[None], torch.zeros(1, dtype=torch.int64).numpy())


def test_a_checkpoint_writes_only_rows_that_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.runtime.checkpoints import segments

    monkeypatch.setattr(segments, "BLOCK_BYTES", 1024)
    written: list[int] = []
    write = segments.write_bytes
    monkeypatch.setattr(
        segments,
        "write_bytes",
        lambda path, content: (written.append(len(content)), write(path, content)),
    )
    buffer, saved, costs = ReplayBuffer(6000, 3, 1), None, []
    for step in range(40):
        rows_of(buffer, 250)
        written.clear()
        saved = write_checkpoint(tmp_path / f"step_{step}", Contents({}, {}, buffer), saved)
        costs.append(sum(written))
    assert max(costs[20:]) <= 1.5 * max(costs[:5])  # 10,000 rows cost what 1,000 did
    before = len(written)
    again = write_checkpoint(tmp_path / "step_40", Contents({}, {}, buffer), saved)
    assert len(written) == before  # a new best rewrites nothing
    assert again is not None
    assert [s.sha256 for s in again.segments] == [s.sha256 for s in saved.segments]  # type: ignore[union-attr]


def test_how_a_replay_is_cut_does_not_depend_on_when_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.runtime.checkpoints import segments

    monkeypatch.setattr(segments, "BLOCK_BYTES", 1024)
    names = []
    for number, pieces in enumerate(([700], [100] * 7, [1, 299, 400])):
        torch.manual_seed(0)
        buffer, saved = ReplayBuffer(500, 3, 1), None
        rows = torch.randn(700, 1)
        for step, count in enumerate(pieces):
            start = sum(pieces[:step])
            for value in rows[start : start + count]:
                row = buffer.new_rows(1)
                row[:] = float(value)
                row[:, buffer.layout.termination] = row[:, buffer.layout.truncation] = 0
                buffer.add_rows(row, torch.zeros(1, dtype=torch.int64).numpy())
            saved = write_checkpoint(tmp_path / f"{number}-{step}", Contents({}, {}, buffer), saved)
        assert saved is not None
        names.append([(s.stop, s.sha256) for s in saved.segments][1:])  # the first may be cut short
        assert saved.numbers == range(200, 700)
    assert names[0] == names[1] == names[2]
    assert [block.stop for block in blocks(buffer)][-1] == 700


@pytest.mark.parametrize(
    "changes", [{}, {"algo": "dqn", "env_id": "CartPole-v1", "env_kwargs": {}}]
)
def test_a_saved_policy_takes_its_replay_along(changes: dict[str, Any], online_config: Any) -> None:
    algo = api.algorithm(changes.get("algo", "td3"))(online_config(**changes))
    whole = train(online_config(**changes, total_timesteps=80)).run_dir
    algo.learn()
    copy = algo.save(Path(str(whole)).parent.parent / "policy")
    shutil.rmtree(algo._checkpoint.parent.parent)  # type: ignore[union-attr]
    result = type(algo).load(copy).learn(total_timesteps=80)
    last = [read_checkpoint(run / "checkpoints" / "step_80") for run in (whole, result.run_dir)]
    assert last[0].tensors.keys() == last[1].tensors.keys()
    assert all(torch.equal(last[0].tensors[key], last[1].tensors[key]) for key in last[0].tensors)
