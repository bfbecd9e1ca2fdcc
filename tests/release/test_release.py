"""The wheel that is built from the sdist holds the whole package, and works where there is no repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

import rl_training
from rl_training.experiment import list_algorithm_specs
from tests.release.build import ROOT, Release, build_release

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    pytest.importorskip("build", reason="needs the extra dev")
    pytest.importorskip("hatchling", reason="needs the extra dev")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TRAINING_REPOSITORY", "https://example.org/someone/rl-training/")
        return build_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def unpacked(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(release.wheel).extractall(directory)
    return directory


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_the_package(unpacked: Path) -> None:
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "rl_training").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in packed if ".dist-info/" not in name} == wanted
    assert {Path(name).suffix or Path(name).name for name in wanted} >= {
        ".py",
        ".pyi",
        ".yaml",
        ".typed",
        ".html",
        ".css",
    }


def test_the_sdist_holds_what_belongs_to_the_project_and_nothing_else(release: Release) -> None:
    with tarfile.open(release.sdist) as archive:
        names = [Path(*Path(name).parts[1:]) for name in archive.getnames()]
    tops = {name.parts[0] for name in names if name.parts}
    assert tops == {
        "src", "tests", "docs", "examples", "benchmarks", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
        "SECURITY.md", "CITATION.cff", "LICENSE", "Makefile", "mkdocs.yml", "hatch_build.py", "pyproject.toml",
        "constraints.txt", "constraints-lowest.txt", "PKG-INFO", ".gitignore",
    }  # fmt: skip
    junk = {"__pycache__", "runs", ".venv", ".mypy_cache", ".pytest_cache", ".hypothesis"}
    assert [
        name for name in names if junk & {*name.parts} and name.parts[:2] != ("src", "rl_training")
    ] == []
    assert Path("src/rl_training/assets/configs/td3_bc/pendulum.yaml") in names


WORDS = [
    ["list", "--json"],
    ["train", "bc/pendulum", "total_timesteps=20", "hidden_sizes=[8]", "eval_episodes=1", "--json"],
    ["predict", "runs", "--obs", "[1, 0, 0]", "--json"],
    ["doctor", "--json"],
]
SCRIPT = """
import pathlib, sys
import rl_training
from rl_training.cli.main import main
assert rl_training.__file__.startswith(sys.argv[1]), rl_training.__file__
for words in {words}:
    if words[0] == "predict":
        words[1] = str(next(pathlib.Path("runs").iterdir()))
    code = main(words)
    assert code == 0, (words, code)
    print("---", flush=True)
"""


def run_wheel(unpacked: Path, directory: Path, words: list[list[str]]) -> list[Any]:
    """Run commands with the files of the wheel instead of those of the repository."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(words=words), str(unpacked)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(text) for text in done.stdout.split("---\n") if text.strip()]


def test_the_wheel_lists_trains_predicts_and_is_well(unpacked: Path, tmp_path: Path) -> None:
    known, trained, predicted, doctor = run_wheel(unpacked, tmp_path, WORDS)
    assert "bc/pendulum" in known["configs"]
    assert trained["runs"][0]["stop_reason"] == "total_timesteps"
    assert len(predicted["actions"]) == 1
    assert doctor["problems"] == []
    assert doctor["configs"] == len(known["configs"])
    assert doctor["versions"]["rl-training"] == PROJECT["version"]


# -- metadata ------------------------------------------------------------------------------------


def test_the_address_of_a_release_is_the_one_that_its_builder_states(release: Release) -> None:
    urls = metadata_of(release.wheel).get_all("Project-URL")
    assert urls == ["Repository, https://example.org/someone/rl-training"]
    assert "urls" in PROJECT["dynamic"]


def test_metadata_name_licence_and_python_versions(release: Release) -> None:
    metadata = metadata_of(release.wheel)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    versions = re.findall(
        r"Python :: (3\.\d+)\n", "\n".join(metadata.get_all("Classifier", [])) + "\n"
    )
    assert versions == ["3.11"]  # those that `make test` has passed with


def test_a_stated_address_must_be_one_that_can_be_shown() -> None:
    pytest.importorskip("hatchling", reason="needs the extra dev")
    namespace: dict[str, Any] = {}
    exec((ROOT / "hatch_build.py").read_text(), namespace)  # noqa: S102
    with pytest.raises(ValueError, match="without a user or password"):
        namespace["_checked"]("https://token@example.org/rl-training")
    with pytest.raises(ValueError, match="https://HOST/PATH"):
        namespace["_checked"]("/work/rl-training")


def test_the_citation_names_this_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type"} <= set(citation)
    assert str(citation["version"]) == PROJECT["version"] == rl_training.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["title"] == PROJECT["name"]
    assert citation["authors"] == PROJECT["authors"]


def test_all_is_every_extra_for_users() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    (entry,) = extras.pop("all")
    assert set(re.findall(r"[\w-]+", entry.split("[")[1])) == {*extras} - {
        "dev",
        "docs",
        "bench",
        "parity",
    }


def test_make_lowest_installs_every_lower_bound() -> None:
    """A bound that was never installed is a guess."""
    pins = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-lowest.txt").read_text(), re.M)
    )
    extras = PROJECT["optional-dependencies"]
    requirements = [*PROJECT["dependencies"]]
    for extra in ("minari", "hdf5", "mujoco", "tensorboard", "video", "report"):
        requirements += extras[extra]
    for requirement in requirements:
        name, bound = re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        assert release_number(pins[name]) == release_number(bound), requirement


def release_number(version: str) -> tuple[int, ...]:
    return tuple([*map(int, version.split(".")), 0, 0][:3])


def test_every_algorithm_of_the_package_has_a_packaged_configuration() -> None:
    folders = {name.split("/")[0] for name in rl_training.api.packaged_configs()}
    assert folders == {spec.name for spec in list_algorithm_specs()}
