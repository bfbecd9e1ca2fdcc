"""Evaluation of a policy, apart from training: in whole episodes, and on held-out ones of the log.

- `evaluator`: roll-outs and their scores
- `validation`: metrics on held-out episodes
- `callback`: evaluation at intervals during training
"""
