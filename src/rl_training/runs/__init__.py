"""Run directories: what a run writes and how it is read back. Imports no torch.

- `layout`    names inside a run directory, creating one, `result.json`
- `metadata`  `config.yaml` and `metadata.json`: versions, command line, git state
- `git_state` commit of the working directory, without running programs of its repository
- `lock`      one process per run directory
- `metrics`   rows of metrics on their way to all sinks, and `register_logger`
- `sinks`     one class per file: jsonl, csv, npz, TensorBoard
- `matching`  the run of a given configuration, for a job that is started again
- `rows`      rows of `metrics.jsonl`, one by one
- `tables`    rows of `metrics.jsonl` as tables of numbers; with `numbers` the only modules that need NumPy
- `numbers`   parsing of many numbers at once
- `reading`   `read_run`: scores, ending and times of one run
- `provenance`  version, command and data of a run, from `metadata.json`
"""
