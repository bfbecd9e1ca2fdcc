"""Checks of datasets, behind `rl-training data check`.

- `dataset_checks`      all checks of a dataset, of arrays or of a file
- `sequence_checks`     order of rows, ends of episodes, time limits
- `column_checks`       observations, rewards, duplicates; `Finding`
- `action_checks`       bounds, units and variety of actions
- `scale_checks`        columns of very different scale
- `environment_checks`  shapes against those of an environment
- `episode_ends`        last rows of episodes: time limits, misplaced flags, lost next observations
- `episode_order`       rows of one episode that are not together
- `next_observations`   next observations that belong to another episode, or to none
- `precision`           columns that float32 cannot hold
- `duplicates`          repeated rows and episodes
"""
