"""Every algorithm has a packaged space, whose every value is possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.algorithms.registry import list_algorithm_specs
from rl_training.config import ConfigError, packaged_configs, packaged_spaces
from rl_training.sweeps import Search
from rl_training.sweeps.spaces import read_space

ALGORITHMS = [spec.name for spec in list_algorithm_specs()]


def test_every_listed_algorithm_has_a_space() -> None:
    assert packaged_spaces() == sorted(ALGORITHMS)


def metric_of(config: str) -> str:
    return "train/actor_loss" if config.endswith("own-log") else "eval/return_mean"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_both_ends_of_every_range_are_possible_with_every_packaged_configuration(
    algo: str, tmp_path: Path
) -> None:
    configs = [name for name in packaged_configs() if name.split("/")[0] == algo]
    for name in configs:
        search = Search(name, metric=metric_of(name))
        points = list(search.extremes())
        assert {key for point in points for key in point} == {axis.key for axis in search.axes}
        for point in points:
            search.runs(point, tmp_path, [1])
        # the configuration itself is a point; where it leaves a choice to the algorithm, it may be outside
        assert len(search.start) >= len(search.axes) - 2
    assert configs


def test_a_space_is_a_file_a_packaged_name_or_a_mapping(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("axes: {tau: [0.1]}\n")
    assert read_space(file) == read_space({"axes": {"tau": [0.1]}}) == {"tau": [0.1]}
    assert "expectile" in read_space("iql")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a space, which is YAML text"):
        read_space(file)
    file.write_text("- 1")
    with pytest.raises(ConfigError, match="must be a mapping with the key axes"):
        read_space(file)
    with pytest.raises(ConfigError, match="did you mean 'iql'"):
        read_space("iqll")
