"""Command line: a small module per verb, which calls `rl_training.api` and prints the answer.

- `main`        the application, `--version`, errors as one or two lines with an exit code
- `completion`  names that a shell completes
- `signals`     Ctrl-C and the like outside of training
- `console`     where text goes, how plugins load, how notes are shown
- `train`       `train` and `resume`
- `seed_lines`  one live line per seed
- `policy`      `eval` and `predict`
- `data`        `data info|check|convert|collect`
- `report`      `report`
- `compare`     `compare`, and tables of means and intervals
- `ope`         `ope` and `select`
- `show`        `list`, `explain`, `config`
- `doctor`      `doctor`, with `threads`, its lines on cores and threads
"""
