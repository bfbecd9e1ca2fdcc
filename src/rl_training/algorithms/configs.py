"""Options that algorithms share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rl_training.config import Options, option


class AlgorithmConfig(Options):
    """Options that every algorithm has."""

    batch_size: int = option(256, "transitions per gradient update", ge=1, le=10_000_000)
    learning_rate: float = option(3e-4, "Adam's learning rate", gt=0)
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (256, 256), "width of each hidden layer"
    )

    def chosen(self) -> dict[str, Any]:
        """Return all options, with the learning rate that each network really has."""
        ending = "_learning_rate"
        rates = {
            name: self.network_learning_rate(name.removesuffix(ending))
            for name in type(self).model_fields
            if name.endswith(ending)
        }
        return {**self.model_dump(mode="json"), **rates}

    def network_learning_rate(self, network: str) -> float:
        """`<network>_learning_rate` where it is given, else `learning_rate`."""
        rate = getattr(self, f"{network}_learning_rate", None)
        return float(self.learning_rate if rate is None else rate)


class ActorCriticConfig(AlgorithmConfig):
    """Options of methods that learn action values."""

    gamma: float = option(0.99, "discount per step", ge=0, le=1)
    tau: float = option(0.005, "share of the online network in each target update", gt=0, le=1)
    actor_learning_rate: float | None = option(
        None, "the actor's own rate; null = learning_rate", gt=0
    )
    critic_learning_rate: float | None = option(
        None, "the critics' own rate; null = learning_rate", gt=0
    )
