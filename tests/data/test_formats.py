"""A dataset format is one file: here it lies outside the package."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from rl_training.algorithms.registry import load_plugin
from rl_training.cli.main import main
from rl_training.config import ConfigError, DatasetError
from rl_training.data import TransitionDataset, formats, load_transition_dataset
from rl_training.data.formats import DatasetFormat, parse_location, register_format
from rl_training.data.locations import check_location, read_observations
from rl_training.runtime import TrainConfig, train

PLUGIN = dedent('''
    """Logs of text: one transition per line, in the order of FIELDS."""

    from contextlib import contextmanager

    import numpy as np

    from rl_training.data.formats import ArraySource, DatasetFormat, register_format

    FIELDS = {"obs": 3, "actions": 2, "rewards": 1, "next_obs": 3, "terminations": 1, "truncations": 1}


    @contextmanager
    def open_mylog(dataset_path):
        table = np.loadtxt(dataset_path, np.float32, ndmin=2)
        columns = np.split(table, np.cumsum(list(FIELDS.values()))[:-1], axis=1)
        yield ArraySource(dict(zip(FIELDS, columns)), dataset_path.name)


    def write_mylog(source, path):
        rows = source.fields["rewards"].shape[0]
        columns = [source.read(name, 0, rows).reshape(rows, -1) for name in FIELDS]
        np.savetxt(path, np.concatenate(columns, axis=1), fmt="%.9g")


    register_format(DatasetFormat("mylog", open_mylog, endings=(".mylog",), write=write_mylog))
''')


@pytest.fixture(autouse=True)
def _forget_plugin(monkeypatch):
    formats.list_formats()
    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))


@pytest.fixture
def log(tmp_path, monkeypatch, episodes):
    """A dataset in `log.mylog`, with the plugin that knows the format beside it, not yet loaded."""
    monkeypatch.chdir(tmp_path)
    Path("mylog.py").write_text(PLUGIN)
    dataset = TransitionDataset(**episodes([30, 20], terminal=[True, False]))
    table = [getattr(dataset, name).numpy().reshape(50, -1) for name in episodes([1])]
    np.savetxt("log.mylog", np.concatenate(table, 1), fmt="%.9g")
    return dataset


@pytest.mark.parametrize("options", [{}, {"in_memory": False}])
def test_a_plugin_format_loads_like_any_other(log, options):
    load_plugin("mylog.py")
    dataset = load_transition_dataset("mylog", "log.mylog", **options)
    assert dataset.sha256 == log.sha256
    assert dataset.source == "log.mylog"


def test_a_plugin_format_is_written_by_its_ending(log):
    load_plugin("mylog.py")
    log.save("copy.mylog")
    assert load_transition_dataset("mylog", "copy.mylog").sha256 == log.sha256


def test_training_takes_a_plugin_format_also_in_a_mixture(log, tmp_path):
    load_plugin("mylog.py")
    shared = {"batch_size": 4, "hidden_sizes": [8], "action_low": -1, "action_high": 1}
    chosen = {"dataset_kind": "mylog", "dataset_path": "log.mylog"}
    mixed = {"dataset_mix": [{"kind": "mylog", "path": "log.mylog"}]}
    for source in (chosen, mixed):
        config = TrainConfig(
            algo="bc", total_timesteps=5, output_dir=str(tmp_path), algo_kwargs={**shared, **source}
        )
        assert train(config).metrics


def test_the_command_line_reads_checks_and_writes_a_plugin_format(log, capsys):
    plugin = ["--plugin", "mylog.py"]
    assert main(["data", "info", "log.mylog", *plugin]) == 0
    assert "50" in capsys.readouterr().out
    assert main(["data", "check", "log.mylog", *plugin]) == 0
    assert main(["data", "convert", "log.mylog", "log.npz", *plugin]) == 0
    assert main(["data", "convert", "log.npz", "again.mylog", *plugin]) == 0
    assert load_transition_dataset("mylog", "again.mylog").sha256 == log.sha256
    assert read_observations("log.mylog").shape == (50, 3)
    assert check_location("log.mylog") == []


def test_without_its_plugin_the_format_is_unknown(log, capsys):
    assert main(["data", "info", "log.mylog"]) == 2
    assert "not a dataset; write a file (.hdf5, .h5, .npz, .pt, .pth)" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"unknown dataset_kind 'mylog' .*--plugin FILE adds"):
        TrainConfig(algo="bc", algo_kwargs={"dataset_kind": "mylog", "dataset_path": "log.mylog"})


def test_a_plugin_needs_the_options_that_its_format_declares(log):
    load_plugin("mylog.py")
    with pytest.raises(ConfigError, match="dataset_kind 'mylog' needs dataset_path"):
        TrainConfig(algo="bc", algo_kwargs={"dataset_kind": "mylog"})
    with pytest.raises(ConfigError, match="dataset_id is not used by dataset_kind 'mylog'"):
        load_transition_dataset("mylog", "log.mylog", dataset_id="x")
    with pytest.raises(
        DatasetError, match=r"there is no file log\.mylo; did you mean 'log\.mylog'"
    ):
        load_transition_dataset("mylog", "log.mylo")


def test_a_name_or_an_ending_belongs_to_one_format():
    with pytest.raises(ConfigError, match="'npz' is registered twice"):
        register_format(DatasetFormat("npz", open_nothing))
    with pytest.raises(ConfigError, match=r"end in \.pt belong to dataset format 'pt'"):
        register_format(DatasetFormat("other", open_nothing, endings=(".other", ".pt")))
    assert "other" not in [entry.name for entry in formats.list_formats()]


def open_nothing(dataset_path):
    raise NotImplementedError


def test_a_format_with_names_is_written_with_a_colon():
    register_format(DatasetFormat("shelf", open_nothing, keys=("dataset_id",)))
    dataset_format, options = parse_location("shelf:a/b")
    assert (dataset_format.name, options) == ("shelf", {"dataset_id": "a/b"})
    with pytest.raises(DatasetError, match="builtin:NAME, minari:NAME or shelf:NAME"):
        parse_location("nowhere")


def test_an_installed_plugin_is_found_by_its_entry_point(log, monkeypatch):
    class Entry:
        def load(self):
            load_plugin("mylog.py")

    def entry_points(group):
        return [Entry()] if group == "rl_training.formats" else []

    monkeypatch.setattr(formats, "entry_points", entry_points)
    monkeypatch.setattr(formats, "_discovered", False)
    assert load_transition_dataset("mylog", "log.mylog").sha256 == log.sha256


def test_the_registry_is_light_to_import():
    code = (
        "import sys; from rl_training.data.formats import list_formats; list_formats(); "
        "print([name for name in ('torch', 'h5py', 'minari', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
