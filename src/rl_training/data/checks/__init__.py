"""Checks of datasets, behind `rl-training data check`.

- `dataset_checks`      all checks of a dataset, of arrays or of a file
- `column_checks`       observations, sequence, time limits, rewards, duplicates; `Finding`
- `action_checks`       bounds, units and variety of actions
- `scale_checks`        columns of very different scale
- `environment_checks`  shapes against those of an environment
- `duplicates`          repeated rows and episodes
"""
