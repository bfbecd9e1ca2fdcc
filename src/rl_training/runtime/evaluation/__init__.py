"""Evaluation of a policy in whole episodes, apart from training.

- `evaluator`: roll-outs and their scores
- `callback`: evaluation at intervals during training
"""
