"""Checks of datasets, behind `rl-training data check`.

- `dataset_checks`      all checks of a dataset, of arrays or of a file
- `column_checks`       observations, sequence, time limits, rewards, duplicates; `Finding`
- `action_checks`       bounds, units and variety of actions
- `environment_checks`  shapes against those of an environment
- `precision`           columns that float32 cannot hold
- `duplicates`          repeated rows and episodes
"""
