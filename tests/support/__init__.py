"""Helpers that several test files share; no test imports another test.

- `runs`: crashes at a chosen moment, and the comparison of two runs bit for bit
- `envs`: environments that are scripted, fail, or are not reproducible
- `data`: a small log
- `findings`: a dataset without faults to break, and the findings about it
- `algorithms`: small learners of every registered algorithm, and batches for them
- `online`: the same for algorithms that collect, and a look at their targets
- `run_directories`: runs as training leaves them, with curves that are made up
- `scored_runs`: runs with given scores and nothing else
- `search_records`: records of searches without their runs
- `fake_trials`: an executor whose runs are made up at once
- `cards`: score cards of policies
- `parity/`: the same weights, batch and noise in another library and in ours
"""
