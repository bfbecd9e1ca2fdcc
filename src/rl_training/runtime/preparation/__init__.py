"""Steps before training data is scaled, in `runtime/prepare.py`.

- `loading`: load the configured dataset, hold out episodes, keep the best ones
- `agreement`: algorithm, environment and data must agree on observations and actions
"""
