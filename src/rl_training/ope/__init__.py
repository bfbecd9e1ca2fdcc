"""Judge policies from logs, without a simulator.

- `importance`    importance-weighting estimators of a policy's value, with intervals
- `intervals`     bootstrap intervals over episodes
- `weighted_log`  logged episodes with importance weights
"""
