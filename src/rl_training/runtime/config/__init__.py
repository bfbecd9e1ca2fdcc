"""Configuration of a run, validated as a whole before anything is created.

- `train_config`: `TrainConfig` and the groups that its `algo_kwargs` are split into
- `files`: configuration files and packaged configurations, with overrides
- `controls`: the `control` group, early stopping included
- `schedules`: learning-rate schedules as pure functions of the step
- `cross_field_checks`: options that do not go together
"""
