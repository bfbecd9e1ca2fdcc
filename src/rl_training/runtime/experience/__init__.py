"""Experience: where batches come from, one class for each data regime.

- `protocols`: `Experience` and `Sampler`, the interfaces to the training loop
- `offline`: batches of a fixed dataset
- `online`: collecting and learning from the replay in turns
- `offline_to_online`: pretraining on logged data, then fine-tuning online
- `mixture`: the sampler of the latter, logged and collected rows in one batch
- `collector`: environment steps into the replay, with exact resume in mid-episode
- `episodes`: returns and lengths of the episodes that it collects
- `single_env_collector`: the same for one environment, faster
- `build`: the experience that a configuration asks for
"""
