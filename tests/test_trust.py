"""Files of a stranger: no name or path in a checkpoint, run or configuration runs code."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

from rl_training import TD3BC, api
from rl_training.cli.console import say_json, show_notes
from rl_training.cli.main import main
from rl_training.cli.trial_lines import TrialLines
from rl_training.config import ConfigError, DatasetError, EnvError, visible
from rl_training.data import load_transition_dataset
from rl_training.envs import make_env, make_vector_env
from rl_training.experiment import load_config
from rl_training.runs.git_state import git_state
from rl_training.runs.layout import create_run_dir
from rl_training.runtime import TrainConfig, train, trust
from rl_training.runtime.checkpoints.manifest import sealed
from rl_training.runtime.loop.progress import ProgressCallback
from rl_training.sweeps.status import TrialStatus
from tests.support.envs import ScriptedEnv

MODULE = """
from pathlib import Path
from tests.support.envs import ScriptedEnv
Path(__file__).with_suffix(".imported").touch()
class Env(ScriptedEnv): pass
"""
STRANGER = "stranger_env:Env"
RANDOM: dict[str, Any] = {
    "algo_kwargs": {"dataset_kind": "random", "dataset_size": 60, "dataset_path": None}
}


class Site:
    """A stranger's run, whose environment leaves a file behind when its module is imported."""

    def __init__(self, directory: Path, run: Path) -> None:
        self.run = run
        self.checkpoint = run / "checkpoints" / "step_40"
        self.imported = directory / "stranger_env.imported"

    def edit(self, **values: Any) -> None:
        """Change the configuration in the manifest, as somebody who knows the format can."""
        path = self.checkpoint / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["config"] |= values
        path.write_bytes(sealed(manifest))


@pytest.fixture(autouse=True)
def _named_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_named", set())


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_config: Callable[..., TrainConfig]
) -> Iterator[Site]:
    (tmp_path / "stranger_env.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = small_config(
        env_id="Pendulum-v1",
        **RANDOM,
        eval_episodes=0,
    )
    site = Site(tmp_path, train(config).run_dir)
    site.edit(env_id=STRANGER)
    yield site
    sys.modules.pop("stranger_env", None)


def score(site: Site, **options: Any) -> Any:
    return api.evaluate(site.checkpoint, num_episodes=1, **options)


def go_on(site: Site, **options: Any) -> Any:
    return api.resume(site.run, total_timesteps=50, **options)


def fine_tune(site: Site, **options: Any) -> Any:
    return api.resume(site.run, total_timesteps=5, online=True, **options)


def collect(site: Site, **options: Any) -> Any:
    target = site.run.parent / "log.npz"
    return api.collect_dataset(target, checkpoint=site.checkpoint, steps=5, **options)


@pytest.mark.parametrize("command", [score, go_on, fine_tune, collect])
def test_a_checkpoint_alone_imports_no_module(site: Site, command: Callable[..., Any]) -> None:
    before = sorted(site.run.parent.rglob("*"))
    with pytest.raises(EnvError) as caught:
        command(site)
    message = str(caught.value)
    assert "'stranger_env:Env', which would import the module 'stranger_env'" in message
    assert str(site.checkpoint) in message
    assert "--trust-env" in message
    assert "--env stranger_env:Env" in message
    assert not site.imported.exists()
    assert [path for path in sorted(site.run.parent.rglob("*")) if path.suffix != ".lock"] == [
        path for path in before if path.suffix != ".lock"
    ]


@pytest.mark.parametrize("options", [{"trust_env": True}, {"env_id": STRANGER}])
@pytest.mark.parametrize("command", [score, go_on, fine_tune, collect])
def test_the_user_can_allow_the_environment_of_a_checkpoint(
    site: Site, command: Callable[..., Any], options: dict[str, Any]
) -> None:
    # the policy of another problem then does not fit; the module has been imported by that time
    with pytest.raises((EnvError, DatasetError), match=r"fit|width|bounds"):
        command(site, **options)
    assert site.imported.exists()


def test_a_managed_object_evaluates_a_strangers_environment_only_if_told_to(site: Site) -> None:
    loaded = TD3BC.load(site.checkpoint)
    assert loaded.predict([1.0, 0.0, 0.0]).shape == (1,)
    with pytest.raises(EnvError, match="--trust-env"):
        loaded.evaluate(1)
    with pytest.raises(EnvError, match="--trust-env"):
        loaded.learn(total_timesteps=50)
    assert not site.imported.exists()
    with pytest.raises(EnvError, match="does not fit"):
        TD3BC.load(site.checkpoint, trust_env=True).evaluate(1)
    assert site.imported.exists()


@pytest.mark.parametrize("env_id", ["os:system", "GymV21Environment-v0", "GymV26Environment"])
def test_modules_that_are_imported_already_are_no_exception(site: Site, env_id: str) -> None:
    marker = site.run.parent / "ran"
    site.edit(env_id=env_id, env_kwargs={"command": f"touch {marker}", "env_id": "os:system"})
    with pytest.raises(EnvError, match="--trust-env"):
        score(site)
    with pytest.raises(EnvError):
        score(site, trust_env=True)  # nor is a function ever called, if that is allowed
    assert not marker.exists()


def test_a_run_of_this_process_needs_no_word(small_config: Callable[..., TrainConfig]) -> None:
    config = small_config(
        "sac", env_id="tests.support.envs:ScriptedEnv", total_timesteps=20, eval_episodes=1
    )
    result = train(config)
    api.evaluate(result.run_dir, num_episodes=1)
    api.resume(result.run_dir, total_timesteps=30)


def test_auto_resume_trusts_the_users_configuration_and_not_the_checkpoint(site: Site) -> None:
    (site.run / "result.json").unlink()  # so that something is left to do
    config = load_config(site.run / "config.yaml")  # names Pendulum-v1, the manifest does not
    with pytest.raises(EnvError, match="--trust-env"):
        train(config, auto_resume=True)
    assert not site.imported.exists()


def test_env_arguments_of_a_checkpoint_do_not_reach_another_environment(site: Site) -> None:
    site.edit(env_kwargs={"g": "not a number"})
    assert collect(site, env_id="Pendulum-v1") == 5


def test_a_function_is_no_environment(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(EnvError) as caught:
        make_env("os:system", {"command": f"touch {marker}"})
    assert str(caught.value) == (
        "os:system: system is a function; env_id takes a registered id or an Env class, so register it "
        "in Python: gymnasium.register(id='MyEnv-v0', entry_point=system)"
    )
    assert not marker.exists()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_factory_is_registered_in_python(asynchronous: bool) -> None:
    def factory(limit: int = 3) -> gym.Env[Any, Any]:
        return gym.wrappers.TimeLimit(ScriptedEnv(), limit)

    gym.register(id="MyEnv-v0", entry_point=factory)
    try:
        envs = make_vector_env("MyEnv-v0", 2, {"limit": 2}, asynchronous=asynchronous)
        envs.reset(seed=[0, 1])
        envs.step(envs.action_space.sample())
        assert envs.step(envs.action_space.sample())[3].all()
        envs.close()
    finally:
        gym.registry.pop("MyEnv-v0")


def test_a_run_that_goes_on_from_a_lone_checkpoint_is_created_in_runs(
    tmp_path: Path, small_config: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    result = train(small_config(output_dir=str(tmp_path / "elsewhere")))
    shutil.copytree(result.checkpoint_path, tmp_path / "lone")
    gone_on = api.resume(tmp_path / "lone", total_timesteps=50)
    assert gone_on.run_dir.parent.absolute() == here / "runs"
    assert "output_dir: runs" in (gone_on.run_dir / "config.yaml").read_text()


def test_an_env_id_cannot_lead_out_of_the_output_directory(tmp_path: Path) -> None:
    path = create_run_dir(tmp_path, "bc", "../../\x00\x1b[2J\\..\\x", 0)
    assert path.parent == tmp_path
    assert path.name.isprintable()
    assert "\\" not in path.name


@pytest.mark.parametrize("key", ["plugin", "plugins", "modules", "import"])
def test_no_key_of_a_configuration_loads_a_plugin(tmp_path: Path, key: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"algo: bc\n{key}: [stranger]\n")
    with pytest.raises(ConfigError, match=f"{key}: unknown key"):
        load_config(path)
    path.write_text(f"algo: bc\nalgo_kwargs: {{{key}: [stranger]}}\n")
    with pytest.raises(ConfigError, match=f"{key}: unknown key"):
        load_config(path)


@pytest.mark.parametrize("dataset_id", ["../../x", "/etc", "a/../../x", "..\\x"])
@pytest.mark.parametrize("kind", ["minari", "builtin"])
def test_a_dataset_id_is_a_name_and_not_a_path(kind: str, dataset_id: str) -> None:
    with pytest.raises((ConfigError, DatasetError), match=r"not a path|no builtin dataset"):
        load_transition_dataset(kind, dataset_id=dataset_id)


HOSTILE = ["torch", "numpy", "yaml", "json", "typing", "typer", "rich", "gymnasium", "pydantic", "email", "csv"]  # fmt: skip
HOSTILE += ["multiprocessing", "pickle", "tempfile", "minari", "gymnasium_robotics", "tensorboard"]
CONSOLE_SCRIPT = "from rl_training.__main__ import main\nmain()\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with modules named as installed ones; each leaves a file behind when it is run."""
    directory = tmp_path / "hostile"
    directory.mkdir()
    for name in HOSTILE:
        code = "open(__file__ + '.ran', 'w').close()\nraise SystemExit('hostile: ' + __name__)\n"
        (directory / f"{name}.py").write_text(code)
    return directory


def run(how: str, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line from a directory, as the installed script or by `python -m`."""
    script = directory.parent / "bin" / "rl-training"
    script.parent.mkdir(exist_ok=True)
    script.write_text(CONSOLE_SCRIPT)
    start = [str(script)] if how == "script" else ["-m", "rl_training"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(api.__file__).parents[2])
    return subprocess.run(
        [sys.executable, *start, *words],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def ran(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.ran"))


@pytest.mark.parametrize("how", ["script", "module"])
def test_modules_of_the_working_directory_are_not_taken_for_installed_ones(
    hostile: Path, how: str, small_config: Callable[..., TrainConfig]
) -> None:
    run_dir = str(train(small_config(env_id="Pendulum-v1", eval_episodes=0, **RANDOM)).run_dir)
    for words in (
        ["--help"],
        ["list"],
        ["config", "bc/pendulum"],
        ["report", run_dir],
        ["eval", run_dir, "--episodes", "1"],
    ):
        done = run(how, hostile, *words)
        assert done.returncode == 0, done.stderr
    assert not ran(hostile)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH came with Python 3.11")
def test_seed_processes_do_not_run_modules_of_the_working_directory(hostile: Path) -> None:
    words = ["total_timesteps=5", "hidden_sizes=[8]", "eval_episodes=0", "--seeds", "1,2"]
    done = run("script", hostile, "train", "bc/pendulum", *words, "--jobs", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    assert not ran(hostile)


def test_own_modules_of_the_working_directory_are_found_last(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hostile / "my_env.py").write_text("from tests.support.envs import ScriptedEnv as MyEnv\n")
    (hostile / "tests").symlink_to(Path(__file__).parent)
    (hostile / "my_plugin.py").write_text("print('my plugin')\n")
    words = ["env_id=my_env:MyEnv", "total_timesteps=20", "learning_starts=10", "hidden_sizes=[8]"]
    words += ["eval_episodes=1", "num_envs=2", "vector_env=async", "--plugin", "my_plugin", "-q"]
    done = run("script", hostile, "train", "sac/pendulum", *words, "--seeds", "1,2", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "my plugin" in done.stdout
    assert not set(ran(hostile)) & {"torch.py.ran", "numpy.py.ran", "json.py.ran", "typing.py.ran"}
    (run_dir, _) = (hostile / "runs").iterdir()
    assert main(["eval", str(run_dir), "--episodes", "1"]) == 2
    assert "--trust-env" in capsys.readouterr().err
    for option in (["--trust-env"], ["--env", "my_env:MyEnv"]):
        assert (
            run("script", hostile, "eval", str(run_dir), "--episodes", "1", *option).returncode == 0
        )


def git(directory: Path, *words: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "repository"
    directory.mkdir()
    monkeypatch.chdir(directory)
    (directory / "code.py").write_text("x = 1\n")
    git(directory, "init", "-q")
    git(directory, "add", "code.py")
    git(directory, "commit", "-q", "-m", "first")
    git(directory, "remote", "add", "origin", "https://example.org/x.git")
    return directory


def test_metadata_says_the_commit_and_whether_files_have_changed(repository: Path) -> None:
    state = git_state()
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (repository / "code.py").write_text("x = 2\n")
    assert git_state() == {**state, "dirty": True}


@pytest.mark.parametrize(
    "setting",
    [
        "core.fsmonitor",
        "filter.evil.clean",
        "filter.evil.process",
        "core.sshCommand",
        "include.path",
    ],
)
def test_a_strangers_repository_runs_no_program(repository: Path, setting: str) -> None:
    program, marker = repository.parent / "program.sh", repository.parent / "ran"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    shutil.copy(program, hooks / "post-index-change")
    value = str(program)
    if setting == "include.path":
        value = str(repository.parent / "more")
        Path(value).write_text(f'[filter "evil"]\nclean = {program}\n')
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    git(repository, "config", setting, value)
    (repository / "code.py").write_text("x = 3\n")  # of the same size, so that git has to read it
    state = git_state()
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is None  # not known
    assert not marker.exists()


EVIL = "a\x1b[2J\x1b]0;title\x07\r\x08\x7f\x9b31m\u202e[red]b"
SHOWN = r"a\x1b[2J\x1b]0;title\x07\x0d\x08\x7f\x9b31m\u202e[red]b"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_control_characters_are_made_visible_and_other_text_stays() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("±µ 日本\n\tÄ 👩‍👩‍👧") == "±µ 日本\n\tÄ 👩‍👩‍👧"


def _said(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """All that a command wrote to the terminal; no control character is among it."""
    capfd.readouterr()
    main(list(words))
    written = "".join(capfd.readouterr())
    assert not CONTROLS.search(written), repr(written)
    return written


def test_no_escape_sequence_of_a_file_reaches_the_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    small_config: Callable[..., TrainConfig],
    log_file: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    quoted = json.dumps(EVIL)
    Path("keys.yaml").write_text(f"algo: bc\n{quoted}: 1\n")
    Path("bidi.yaml").write_text('algo: bc\n"a\u202eb": 1\n')
    Path("values.yaml").write_text(f"algo: bc\nenv_id: {quoted}\ntags: [{quoted}]\n")
    Path("algo.yaml").write_text(f"algo: {quoted}\n")
    assert "control characters are not allowed" in _said(capfd, "config", "keys.yaml")
    assert r"\u202e" in _said(capfd, "config", "bidi.yaml")
    _said(capfd, "config", "values.yaml")
    _said(capfd, "train", "values.yaml")
    _said(capfd, "config", "algo.yaml")
    assert SHOWN in _said(capfd, "config", f"{EVIL}.yaml")  # as a shell would complete the name
    assert SHOWN in _said(capfd, "eval", EVIL)
    _said(capfd, "eval", "--episodes", EVIL, "x")  # usage errors come from click
    _said(capfd, "--debug", "config", "keys.yaml")

    np.savez("log.npz", **{**np.load(log_file), EVIL: np.zeros(3)})
    for verb in ("info", "check"):
        _said(capfd, "data", verb, "log.npz")
        json.loads(_said(capfd, "data", verb, "log.npz", "--json"))

    run_dir = train(small_config(tags=(EVIL,))).run_dir
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    (run_dir / "config.yaml").write_text(json.dumps({**config, "env_id": EVIL}))
    row = json.dumps({"step": 50, f"eval/{EVIL}": 1.0, "eval/return_mean": 1.0})
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write(row + "\n" + EVIL + "\n")
    result = json.loads((run_dir / "result.json").read_text())
    (run_dir / "result.json").write_text(
        json.dumps({**result, "stop_reason": EVIL, "metrics": {EVIL: 1.0}, "seconds": {EVIL: 1.0}})
    )
    _said(capfd, "report", str(run_dir))
    written = _said(capfd, "report", str(run_dir), "--json")
    if not written.startswith("error"):
        json.loads(written)
    _said(capfd, "resume", str(run_dir), "--total-timesteps", "40")
    evil_dir = run_dir.rename(run_dir.with_name("run" + EVIL.replace("/", "")))
    assert SHOWN in _said(capfd, "resume", str(evil_dir), "--total-timesteps", "50")


def test_warnings_and_notes_are_made_visible(capfd: pytest.CaptureFixture[str]) -> None:
    show_notes()
    logging.getLogger("rl_training").warning("%s", EVIL)
    warnings.warn(f"\x1b[33mWARN: {EVIL}\x1b[0m", UserWarning, stacklevel=1)
    TrialLines({"a": "seed 1"}).show("a", TrialStatus("waiting", warnings=(EVIL,)))
    TrialLines({"a": "seed 1"}).show("a", TrialStatus("failed", error=EVIL))
    written = capfd.readouterr().err
    assert written.splitlines() == [
        f"warning: {SHOWN}",
        f"warning: WARN: {SHOWN}",
        f"seed 1  warning: {SHOWN}",
        "seed 1  waiting",
        f"seed 1  failed  {SHOWN}",
    ]


def test_json_with_control_characters_stays_json(capfd: pytest.CaptureFixture[str]) -> None:
    say_json({EVIL: EVIL})
    written = capfd.readouterr().out
    assert not CONTROLS.search(written)
    assert json.loads(written) == {EVIL: EVIL}


def test_the_progress_bar_takes_no_markup_from_names() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    bar = ProgressCallback(10, stream)
    learner = SimpleNamespace(name=EVIL)
    state: Any = SimpleNamespace(
        algorithm=learner, update_count=0, global_step=0, run_dir=Path(EVIL)
    )
    bar.on_train_start(state)
    bar.close()
    assert r"\x1b[2J" in stream.getvalue()
    assert "[red]b" in stream.getvalue()
    assert "\x07" not in stream.getvalue()
