"""Facts that README, roadmap and plans state: what must be said is said, and equals the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_training.data.builtin.library import BUILTIN
from rl_training.experiment import list_algorithm_specs
from rl_training.experiment.registry import AlgorithmSpec

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SPECS = {spec.name: spec for spec in list_algorithm_specs()}
# words of a page title and of a link for each algorithm
PAGE = {name: f"algorithms/{name}.md" for name in SPECS}


def rows_of(page: Path) -> list[list[str]]:
    """Cells of every table row of a page."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def scope_row(name: str) -> list[str]:
    return next(row for row in rows_of(DOCS / "plans/scope.md") if f"{name}.md)" in row[0])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_scope_page_says_what_the_registry_says(spec: AlgorithmSpec) -> None:
    _, trains, actions, _ = scope_row(spec.name)
    assert trains == ", ".join(regime.replace("_", "-") for regime in spec.regimes)
    assert actions.split(";")[0] == ", ".join(spec.action_kinds)


@pytest.mark.parametrize("name", SPECS)
def test_every_algorithm_is_on_the_overview_pages(name: str) -> None:
    for page in ("index.md", "plans/scope.md", "plans/sourcebook.md"):
        assert PAGE[name] in (DOCS / page).read_text(), page
    assert f"algorithms/{name}.py" in (ROOT / "README.md").read_text()


def test_readme_shows_reward_shaping_evaluation_and_early_stopping_in_one_example() -> None:
    blocks = re.findall(r"```\w+\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    wanted = ("wrappers", "reward:", "eval_interval", "early_stopping", "algo: awac")
    assert any(all(word in block for word in wanted) for block in blocks)
    assert any("with_next_actions" in block for block in blocks)


@pytest.mark.parametrize(
    "promise",
    [
        "Foundation", "Offline wave", "Online wave", "Offline-to-online wave", "Goals", "RLPD", "Cal-QL", "AWAC",
        "CRR", "ReBRAC", "Off-policy evaluation", "Sweeps", "Export", "Parquet", "Recurrent policies", "image observations",
    ],
)  # fmt: skip
def test_roadmap_says(promise: str) -> None:
    assert promise.lower() in (DOCS / "plans/roadmap.md").read_text().lower()


def test_changelog_names_every_built_in_dataset() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert [name for name in BUILTIN if name not in text] == []


def benchmark_scores() -> dict[str, tuple[float, float]]:
    """Pendulum column of the offline benchmark page: mean and deviation over seeds."""
    scores = {}
    for row in rows_of(DOCS / "benchmarks/offline.md"):
        match = re.match(r"(-?[\d.]+) ± ([\d.]+)", row[1])
        if match:
            scores[row[0].strip("`")] = (float(match[1]), float(match[2]))
    return scores


@pytest.mark.parametrize("name", benchmark_scores())
def test_scores_on_a_page_are_those_of_the_benchmark(name: str) -> None:
    scores, text = benchmark_scores(), (DOCS / PAGE[name]).read_text()
    stated = re.search(rf"`{name}/pendulum` returned (-?\d+) ± (\d+)", text)
    assert stated, "the page states the score of its packaged configuration"
    assert (int(stated[1]), int(stated[2])) == tuple(map(round, scores[name]))
    for label, other in (("BC", "bc"), ("TD3+BC", "td3_bc")):
        for mean, spread in re.findall(
            rf"(?<![+\w]){re.escape(label)}(?: returned)? (-?\d+) ± (\d+)", text
        ):
            assert (int(mean), int(spread)) == tuple(map(round, scores[other]))
