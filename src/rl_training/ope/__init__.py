"""Off-policy evaluation: judge a policy from a log, without an environment.

    card = ope.judge("runs/td3_bc__...", "log.npz")
    card.verdict        # better than the log, not distinguishable, worse, do not trust this

- `judging`        from a policy and a log to a score card
- `judged_log`     episodes, first states, what was cut
- `judged_policy`  networks of a checkpoint, its actions and their probabilities
- `fitted_q`       fitted Q evaluation as a run: an ensemble of bootstrap replicates
- `behaviour`      probabilities of the logging policy: from the log, or from a fitted model
- `calibration`    calibration of that model on rows that it has not seen
- `fit_runs`       fits as runs: an earlier one is taken or resumed
- `importance`     importance-weighting estimators of a policy's value, with intervals
- `weighted_log`   logged episodes with importance weights
- `intervals`      bootstrap intervals over episodes
- `estimates`      estimates of both kinds as rows of a card
- `pictures`       numbers that a card's page draws
- `selecting`      rank several policies
- `card`, `verdict`  the score card, and what its verdict rests on
"""

from rl_training.ope.card import CardEstimate, Interval, ScoreCard
from rl_training.ope.fitted_q import FitOptions
from rl_training.ope.judging import judge
from rl_training.ope.selecting import Ranking, select

__all__ = ["CardEstimate", "FitOptions", "Interval", "Ranking", "ScoreCard", "judge", "select"]
