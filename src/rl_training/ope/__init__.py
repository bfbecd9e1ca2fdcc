"""Off-policy evaluation: judge a policy from a log, without an environment.

    card = ope.judge("runs/td3_bc__...", "log.npz")
    card.verdict        # better than the log, not distinguishable, worse, do not trust this

- `judge`          from a policy and a log to a score card
- `judged_log`     episodes, first states, what was cut
- `judged_policy`  networks of a checkpoint, its actions and their probabilities
- `fitted_q`       fitted Q evaluation as a run: an ensemble of bootstrap replicates
- `importance`     importance-weighting estimators of a policy's value, with intervals
- `weighted_log`   logged episodes with importance weights
- `intervals`      bootstrap intervals over episodes
- `estimates`      estimates of both kinds as rows of a card
- `pictures`       numbers that a card's page draws
- `card`, `verdict`  the score card, and what its verdict rests on
"""
