"""The documentation is true: its examples run, and its tables name every option and default.

Code blocks of a page run in order, in one directory. An HTML comment on the line before a block
says what else to do with it: `not run: <reason>`, `file: <name>` (it is saved under that name),
`output` (each of its lines is part of what the commands before it printed).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch
import yaml
from typer.main import get_command

from rl_training.algorithms import registry
from rl_training.algorithms.registry import AlgorithmSpec
from rl_training.api import algorithms as managed
from rl_training.cli.main import app, main
from rl_training.config import Options, parse_yaml
from rl_training.data import Batch, DatasetConfig, formats, load_transition_dataset
from rl_training.data.builtin.library import BUILTIN
from rl_training.data.dataset_config import DatasetMixPart
from rl_training.data.offline_to_online_config import OfflineToOnlineConfig, RatioSchedule
from rl_training.data.packing.names import SPELLINGS
from rl_training.data.replay_config import ReplayConfig
from rl_training.envs import RewardTransformConfig
from rl_training.experiment import list_algorithm_specs, packaged_configs
from rl_training.runs import metrics
from rl_training.runtime import ControlsConfig, EarlyStoppingConfig, TrainConfig
from rl_training.runtime.config.controls import VALIDATION_METRICS
from rl_training.runtime.config.schedules import ScheduleConfig
from rl_training.runtime.config.train_config import ALIASES
from rl_training.runtime.experience.collector import Episodes
from rl_training.runtime.loop.timing import SPANS
from rl_training.spec import ProblemSpec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "rl_training"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
NOT_RUN = ("make", "pip", "git", "pre-commit")  # they change the machine, not a directory
ALGORITHMS = {spec.name: spec for spec in list_algorithm_specs()}


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    remark: str  # of the HTML comment before it

    def says(self, what: str) -> str | None:
        """`huber_bc.py` of the remark `file: huber_bc.py`."""
        name, _, rest = self.remark.partition(":")
        return rest.strip() if name.strip() == what else None


_FENCE = re.compile(
    r"^(?:<!-- (?P<remark>.+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


def blocks_of(page: Path) -> list[Block]:
    content = page.read_text()
    return [
        Block(
            match["language"],
            match["text"],
            content[: match.start("text")].count("\n"),
            match["remark"] or "",
        )
        for match in _FENCE.finditer(content)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a page's examples run; what they register or import is forgotten afterwards."""
    registry.discover()
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    monkeypatch.setattr(managed, "_MANAGED", dict(managed._MANAGED))
    formats.list_formats()
    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metrics, "_LOGGERS", dict(metrics._LOGGERS))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_example_runs(
    page: Path,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    module = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, "docs_page", module)
    printed = ""
    for block in blocks_of(page):
        place = f"{name_of(page)}, line {block.line}"
        name = block.says("file")
        if block.says("not run") is not None:
            continue
        if name is not None:
            (directory / name).write_text(block.text)
        elif block.says("output") is not None:
            check_output(block.text, printed, place)
        elif block.language == "python":
            lines_before = "\n" * block.line  # so that a traceback shows the line of the page
            exec(compile(lines_before + block.text, str(page), "exec"), vars(module))  # noqa: S102
        elif block.language == "bash":
            capfd.readouterr()
            run_commands(block.text, place)
            printed = "".join(capfd.readouterr())


def run_commands(text: str, place: str) -> None:
    """Commands in this process; `# exit code 2` after one says what it is meant to return."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or Path(words[0]).name in NOT_RUN:
            continue
        assert words[0] == "rl-training", f"{place}: the tests cannot run {line!r}"
        said = re.search(r"# exit code (\d+)", line)
        code = main([part for word in words[1:] for part in expand(word)])
        assert code == (int(said[1]) if said else 0), f"{place}: {line}"


def expand(word: str) -> list[str]:
    """What a shell makes of `runs/first/*`."""
    return sorted(map(str, Path().glob(word))) or [word] if "*" in word else [word]


def check_output(text: str, printed: str, place: str) -> None:
    squeezed = " ".join(printed.split())
    for line in text.splitlines():
        if line.strip() != "...":
            assert " ".join(line.split()) in squeezed, f"{place}: not printed: {line}\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    assert page.read_text().count("\n```") == 2 * len(blocks_of(page)), "a fence is not closed"
    for block in blocks_of(page):
        known = ("python", "bash", "yaml", "text")
        assert block.language in known, f"{name_of(page)}, line {block.line}: {block.language!r}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_every_link_leads_to_a_file(page: Path) -> None:
    prose = _FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    def leaves(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        parts = entry.values() if isinstance(entry, dict) else entry
        return [leaf for part in parts for leaf in leaves(part)]

    listed = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_path_on_the_architecture_page_exists() -> None:
    text = (DOCS / "architecture.md").read_text()
    paths = set(re.findall(r"(?<![\w/(.])[\w./]+(?:/|\.(?:py|md|yml|toml))(?![\w./])", text))
    paths = {path for path in paths if path != "src/rl_training/"}
    assert len(paths) > 30, "the pattern finds paths"
    missing = [
        path
        for path in sorted(paths)
        if not (PACKAGE / path).exists() and not (ROOT / path).exists()
    ]
    assert missing == []


# -- tables --------------------------------------------------------------------------------------


def table(page: Path, *header: str) -> dict[str, str]:
    """First cell (without backticks) to second cell, of all tables that start with this header."""
    start = "| " + " | ".join(header)
    found: dict[str, str] = {}
    inside = False
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(start):
            inside = True
        elif inside and not line.startswith("|--"):
            # a bar inside a cell is written \|
            first, second = re.split(r"(?<!\\)\|", line)[1:3]
            for name in re.findall(r"`([^`]+)`", first):
                found[name] = second.strip()
    return found


def defaults(group: type[Options], prefix: str = "") -> dict[str, Any]:
    return {
        prefix + name: "required" if field.is_required() else field.default
        for name, field in group.model_fields.items()
    }


def own_shared_defaults(spec: AlgorithmSpec) -> dict[str, Any]:
    """Options of collecting and of going on online whose default is this algorithm's own."""
    shared = {**defaults(ReplayConfig), **defaults(OfflineToOnlineConfig)}
    own = {**defaults(spec.algorithm.replay), **defaults(spec.algorithm.offline_to_online)}
    return {name: value for name, value in own.items() if value != shared[name]}


OPTIONS: dict[str, Mapping[str, Any]] = {
    "configuration.md": {
        **defaults(TrainConfig),
        **defaults(ControlsConfig),
        **defaults(ReplayConfig),
        **defaults(OfflineToOnlineConfig),
        **defaults(RatioSchedule, "offline_batch_ratio."),
        **defaults(EarlyStoppingConfig, "early_stopping."),
        **defaults(ScheduleConfig, "learning_rate_schedule."),
        **defaults(RewardTransformConfig, "wrappers.reward."),
    },
    "data.md": {**defaults(DatasetConfig), **defaults(DatasetMixPart)},
    **{
        f"algorithms/{name}.md": {**defaults(spec.config), **own_shared_defaults(spec)}
        for name, spec in ALGORITHMS.items()
    },
}


@pytest.mark.parametrize("page", OPTIONS)
def test_option_tables_have_every_option_with_its_default(page: str) -> None:
    documented = {
        name: value if value == "required" else parse_yaml(value.strip("`"))
        for name, value in table(DOCS / page, "option", "default").items()
    }
    declared = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in OPTIONS[page].items()
    }
    assert documented == declared


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_page_explains_every_metric(name: str) -> None:
    spec = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
    batch = Batch(*(torch.rand(4, *shape) for shape in [(3,), (2,), (), (3,), (), (2,), ()]))
    if "continuous" not in ALGORITHMS[name].action_kinds:
        spec = ProblemSpec(3, "discrete", 2)
        batch = replace(batch, actions=torch.tensor([0, 1, 1, 0]))
    logged: set[str] = set()
    for config in variants(ALGORITHMS[name].config):
        learner = ALGORITHMS[name].algorithm(spec, config)
        for _ in range(4):  # delayed updates log more on some steps
            logged |= {f"train/{term}" for term in learner.update(batch)}
    assert set(table(DOCS / "algorithms" / f"{name}.md", "metric")) == logged


def variants(config: Any) -> list[Any]:
    """The defaults, and each choice of each option that is a choice."""
    choices = [
        {name: value}
        for name, field in config.model_fields.items()
        for value in get_args(field.annotation)
        if isinstance(value, str)
    ]
    return [config(), *(config(**choice) for choice in choices)]


def test_packaged_configurations_are_on_their_algorithms_page() -> None:
    for name in packaged_configs():
        assert f"`{name}`" in (DOCS / "algorithms" / f"{name.split('/')[0]}.md").read_text()


def test_configuration_page_has_every_alias() -> None:
    documented = table(DOCS / "configuration.md", "SB3", "here")
    assert {name: value.split("`")[1] for name, value in documented.items()} == ALIASES


def test_online_page_has_every_rollout_metric() -> None:
    episodes = Episodes(np.zeros(1), np.zeros(1, np.int64), [(1.0, 2)])
    assert {*episodes.report(), "rollout/buffer_size"} <= set(table(DOCS / "online.md", "metric"))


def test_data_page_has_every_validation_metric() -> None:
    page = (DOCS / "data.md").read_text()
    assert [name for name in VALIDATION_METRICS if f"`{name}`" not in page] == []


def test_concepts_page_has_every_span() -> None:
    documented = table(DOCS / "concepts.md", "metric")
    assert [f"time/{span}_seconds" for span in SPANS] == [
        name for name in documented if name.endswith("_seconds") and "<" not in name
    ]


def test_readme_lists_every_algorithm() -> None:
    text = (ROOT / "README.md").read_text()
    for name, spec in ALGORITHMS.items():
        source = Path(sys.modules[spec.algorithm.__module__].__file__ or "")
        assert f"({source.relative_to(ROOT)})" in text, name


def test_cli_page_has_every_verb_and_option() -> None:
    sections = re.split(r"^## ", (DOCS / "cli.md").read_text(), flags=re.M)
    by_title = {section.split("\n")[0].strip("`"): section for section in sections}
    for verb, command in commands(get_command(app)):
        assert f"rl-training {verb}" in by_title[verb]
        for parameter in command.params:
            if parameter.hidden:  # a removed option, there only to be refused
                continue
            for flag in parameter.opts:
                assert not flag.startswith("--") or f"`{flag}" in by_title[verb], (verb, flag)


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield prefix + name, command


@pytest.mark.parametrize("name", BUILTIN)
def test_data_page_has_the_numbers_of_builtin_datasets(name: str) -> None:
    description = load_transition_dataset("builtin", dataset_id=name).describe()
    row = next(
        line for line in (DOCS / "data.md").read_text().splitlines() if f"| `{name}`" in line
    )
    cells = [cell.strip().replace(",", "") for cell in row.split("|")[2:7]]
    expected = [description["transitions"], description["episodes"]]
    expected += [description["return"][key] for key in ("min", "mean", "max")]
    # another CPU may round a sine otherwise, and a pendulum takes that far
    assert [float(cell) for cell in cells] == pytest.approx(expected, rel=0.03, abs=1)


def test_data_page_has_every_spelling_and_finding() -> None:
    page = DOCS / "data.md"
    text = page.read_text()
    for spellings in SPELLINGS.values():
        for spelling in spellings:
            assert f"`{spelling}`" in text, spelling
    documented = table(page, "finding")
    for source in (ROOT / "src" / "rl_training" / "data").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                name = node.args[1]
                assert not isinstance(name, ast.Constant) or name.value in documented


def test_quickstart_lists_every_extra() -> None:
    text = (DOCS / "quickstart.md").read_text()
    for extra in metadata("rl-training").get_all("Provides-Extra") or []:
        assert f"`{extra}`" in text, extra


# -- the demo ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("td3_bc", "rlpd", "code"),
    [([-200, -250, -300], -180, 0), ([-200, -250, -450], -180, 1), ([-200, -250, -300], -900, 1)],
)
def test_demo_fails_unless_td3_bc_and_rlpd_win(
    td3_bc: list[float], rlpd: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    specification = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert specification is not None
    assert specification.loader is not None
    demo = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(demo)
    returns = {
        "td3_bc/pendulum": td3_bc,
        "bc/pendulum": [-400.0] * 3,
        "rlpd/pendulum": [rlpd],
        "sac/pendulum": [-800.0],
    }
    scores = {
        config: [demo.Score(config, seed, value, Path("run")) for seed, value in enumerate(values)]
        for config, values in returns.items()
    }
    monkeypatch.setattr(demo, "run_all", lambda _: scores)
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    assert demo.main() == code
    printed = capsys.readouterr().out
    assert "TD3+BC" in printed
    assert "RLPD" in printed
