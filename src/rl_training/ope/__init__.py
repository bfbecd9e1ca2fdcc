"""Off-policy evaluation: judge a policy from a log, without an environment.

    card = ope.judge("runs/td3_bc__...", "log.npz")
    card.verdict        # better than the log, not distinguishable, worse, do not trust this

- `judged_log`     episodes, first states, what was cut
- `judged_policy`  networks of a checkpoint, its actions and their probabilities
- `fitted_q`       fitted Q evaluation as a run: an ensemble of bootstrap replicates
"""
