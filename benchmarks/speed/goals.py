"""The rows, and how fast we want to be: ratios to reach, beside each peer.

`keep` is the ratio that a row has to keep, `aim` the one that would be good. Rows without them are
there to be read: nothing is judged by them.
"""

from __future__ import annotations

from dataclasses import dataclass

PEERS = {
    "corl": "CORL",
    "d3rlpy": "d3rlpy",
    "sb3": "Stable-Baselines3",
    "contrib": "sb3-contrib",
    "cleanrl": "CleanRL",
    "jax": "JAX, `jit` of a `scan`",
    "gemm": "the FLOP limit (share)",
    "one": "one seed (throughput)",
}


@dataclass(frozen=True)
class Goal:
    contest: str
    peer: str
    title: str
    keep: float | None = None
    aim: float | None = None
    at_least: bool = False  # most ratios are to be small

    @property
    def id(self) -> str:
        return f"{self.contest}/{self.peer}"

    def reaches(self, ratio: float, bound: float | None) -> bool | None:
        """None where nothing is wanted."""
        if bound is None:
            return None
        return ratio >= bound if self.at_least else ratio <= bound


GOALS = [
    Goal("td3_bc", "corl", "TD3+BC", 0.69, 0.60),
    Goal("iql", "corl", "IQL", 0.73, 0.60),
    Goal("awac", "corl", "AWAC", 0.70, 0.60),
    Goal("cql", "corl", "CQL", 0.75, 0.68),
    Goal("td3_bc", "d3rlpy", "TD3+BC"),
    Goal("iql", "d3rlpy", "IQL"),
    Goal("rebrac", "d3rlpy", "ReBRAC"),
    Goal("crr", "d3rlpy", "CRR"),
    Goal("sac", "sb3", "SAC", 0.61, 0.52),
    Goal("sac", "cleanrl", "SAC", 0.58, 0.52),
    Goal("tqc", "contrib", "TQC", 0.55, 0.45),
    Goal("td3", "sb3", "TD3", 0.67, 0.58),
    Goal("td3", "cleanrl", "TD3", 0.67, 0.58),
    Goal("ten_critics", "sb3", "10 critics, with the actor every update", 0.66, 0.55),
    Goal("td3_bc", "jax", "TD3+BC", 1.19, 1.00),
    Goal("iql", "jax", "IQL", 1.24, 1.00),
    Goal("sac", "jax", "SAC", 1.16, 1.00),
    Goal("rlpd", "jax", "RLPD, per critic update", 1.11, 1.00),
    Goal("rebrac", "jax", "ReBRAC", 1.25, 1.00),
    Goal("crr", "jax", "CRR", 1.25, 1.00),
    Goal("dqn_step", "sb3", "DQN on CartPole, per environment step", 0.25, 0.12),
    Goal("sac_step", "sb3", "SAC on HalfCheetah, per environment step", 0.59, 0.50),
    Goal("predict", "sb3", "`predict`, one observation", 0.085, 0.06),
    Goal("td3_bc", "gemm", "TD3+BC", 0.73, 0.85, at_least=True),
    Goal("sac", "gemm", "SAC", 0.73, 0.85, at_least=True),
    Goal("two_seeds", "one", "two seeds on two cores", 1.80, 1.95, at_least=True),
]

# Why a row misses its `keep`, by id; `--page` puts it on the page.
_PARTS = (
    'See "What our update is made of" for what would be left if all but the products were free.'
)
REASONS: dict[str, str] = {
    "iql/corl": (
        "V is evaluated once more than in CORL, after its own step, as in the authors' code: a fifteenth of the "
        f"products. {_PARTS}"
    ),
    "dqn_step/sb3": (
        "Most of a step is the update, whose operations on 64 rows cost what calls cost: see the spans of "
        "`rl-training report`."
    ),
    "rebrac/jax": (
        "XLA merges layer normalisation with its neighbours; here PyTorch's own call takes 15 % of the update."
    ),
    **dict.fromkeys(
        ("td3_bc/gemm", "sac/gemm"),
        "Products inside an update run slower than one product alone, whose matrices stay in the cache: by how much "
        "depends on the machine and the hour.",
    ),
    "two_seeds/one": "The machine had other work on both cores when this was measured.",
}
