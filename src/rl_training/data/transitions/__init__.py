"""Transitions as learners see them; `offline_dataset` is made of these parts.

- `batch`            `Batch`: the fields of B transitions
- `view`             a choice of packed rows, and the transforms applied when they are gathered
- `fields`           the reading half of a dataset: fields, episodes, facts
- `episodes`         rows and returns of episodes, and choosing some of them
- `returns`          discounted returns to go, of datasets and of replay buffers
- `normalizer`       observation normalisation by the statistics of the data
- `summary`          the numbers that `data info` prints
- `argument_checks`  errors about arguments of views
- `batch_memory`     memory of batches that is used again
- `row_ring`         newest rows in a ring, chained into episodes: the storage of replay buffers
- `saved_replay`     checks and conversion of a ring from a checkpoint
"""
