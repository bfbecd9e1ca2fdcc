"""D4RL's reference scores: the return of a random and of an expert policy, by environment.

Source: `REF_MIN_SCORE` and `REF_MAX_SCORE` in `d4rl/infos.py`, github.com/Farama-Foundation/D4RL, commit 89141a6
(2024). The normalised score is `100 (score - random) / (expert - random)`: 0 is random, 100 is expert.

D4RL measured them in MuJoCo environments of version 2. Later versions of gymnasium's environments differ in
physics and rewards, most of all version 5, so that their normalised scores are near those of papers, not equal.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class ReferenceScores(NamedTuple):
    """Returns of a random and of an expert policy."""

    random: float
    expert: float

    def normalise(self, score: float) -> float:
        return 100.0 * (score - self.random) / (self.expert - self.random)


# patterns of environment ids, of gymnasium and of D4RL itself; the whole id must match
_LOCOMOTION = {
    "HalfCheetah": ReferenceScores(-280.178953, 12135.0),
    "Walker2d": ReferenceScores(1.629008, 4592.3),
    "Hopper": ReferenceScores(-20.272305, 3234.3),
    "Ant": ReferenceScores(-325.6, 3879.7),
}
_DATASETS = "random|medium|expert|medium-replay|full-replay|medium-expert"
_REFERENCES = {
    **{rf"{name}-v[2-5]": scores for name, scores in _LOCOMOTION.items()},
    **{rf"{name.lower()}-({_DATASETS})-v[0-2]": scores for name, scores in _LOCOMOTION.items()},
    r"maze2d-open-v0": ReferenceScores(0.01, 20.66),
    r"maze2d-umaze-v1": ReferenceScores(23.85, 161.86),
    r"maze2d-medium-v1": ReferenceScores(13.13, 277.39),
    r"maze2d-large-v1": ReferenceScores(6.7, 273.99),
    r"maze2d-open-dense-v0": ReferenceScores(11.17817, 27.166538620695782),
    r"maze2d-umaze-dense-v1": ReferenceScores(68.537689, 193.66285642381482),
    r"maze2d-medium-dense-v1": ReferenceScores(44.264742, 297.4552547777125),
    r"maze2d-large-dense-v1": ReferenceScores(30.569041, 303.4857382709002),
    r"antmaze-(umaze|umaze-diverse|(medium|large)-(play|diverse))-v[02]": ReferenceScores(0.0, 1.0),
    r"(pen-(human|cloned|expert)-v[01]|AdroitHandPen-v1)": ReferenceScores(
        96.262799, 3076.8331017826877
    ),
    r"(hammer-(human|cloned|expert)-v[01]|AdroitHandHammer-v1)": ReferenceScores(
        -274.856578, 12794.134825156867
    ),
    r"(relocate-(human|cloned|expert)-v[01]|AdroitHandRelocate-v1)": ReferenceScores(
        -6.425911, 4233.877797728884
    ),
    r"(door-(human|cloned|expert)-v[01]|AdroitHandDoor-v1)": ReferenceScores(
        -56.512833, 2880.5693087298737
    ),
    r"kitchen-(complete|partial|mixed)-v0": ReferenceScores(0.0, 4.0),
}


def reference_scores(env_id: str | None) -> ReferenceScores | None:
    """Reference scores of an environment, or None if D4RL has none."""
    for pattern, scores in _REFERENCES.items():
        if env_id is not None and re.fullmatch(pattern, env_id):
            return scores
    return None


def reference_remark(env_id: str) -> str | None:
    """Say where the environment is not the one in which the reference scores were measured."""
    if re.fullmatch(r"(HalfCheetah|Walker2d|Hopper|Ant)-v[345]", env_id):
        return f"{env_id}: D4RL measured its reference scores in version 2, which differs"
    if env_id.startswith("AdroitHand") and reference_scores(env_id):
        return f"{env_id}: D4RL measured its reference scores in an earlier version, which differs"
    return None
