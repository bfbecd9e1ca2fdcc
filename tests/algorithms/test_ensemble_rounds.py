"""REDQ and RLPD against a second, independent implementation of their rounds.

It shares no code with the package: one network per critic, PyTorch's own Adam and distributions,
and explicit loops. It begins with the learner's weights and is given what the learner drew.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from tests.support.online import make, random_batch
from tests.support.parity.harness import State
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl_training.data import Batch

OPTIONS = {"batch_size": 8, "learning_rate": 3e-3, "tau": 0.1, "gamma": 0.9}
OPTIONS |= {"num_critics": 4, "subset_size": 2}
ROUNDS, UPDATES = 5, 3


def perceptron(layers: list[tuple[Tensor, Tensor]], norms: list[tuple[Tensor, Tensor]]) -> Any:
    """Linear, LayerNorm (if there are norms), ReLU, ..., Linear; weights are (out, in)."""
    modules: list[nn.Module] = []
    for position, (weight, bias) in enumerate(layers):
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": bias})
        modules.append(linear)
        if position == len(layers) - 1:
            break
        if norms:
            norm = nn.LayerNorm(weight.shape[0])
            norm.load_state_dict(
                dict(zip(("weight", "bias"), map(torch.flatten, norms[position]), strict=True))
            )
            modules.append(norm)
        modules.append(nn.ReLU())
    return nn.Sequential(*modules)


class Reference:
    """Chen et al. 2021, algorithm 1; Ball et al. 2023, algorithm 1."""

    def __init__(self, name: str, learner: Any) -> None:
        self.mean_over_critics = name == "rlpd"  # REDQ's loss is a sum
        dimensions = learner.spec.action_dim
        self.target_entropy = -dimensions / 2 if name == "rlpd" else -float(dimensions)
        layers = [(layer.weight, layer.bias) for layer in learner.actor.net.layers]
        self.actor = perceptron(layers, [])
        self.critics = [self.member(learner.critic, n) for n in range(OPTIONS["num_critics"])]
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros((), requires_grad=True)
        rate = OPTIONS["learning_rate"]
        weights = [p for critic in self.critics for p in critic.parameters()]
        self.critic_adam = torch.optim.Adam(weights, rate)
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), rate)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], rate)

    @staticmethod
    def member(ensemble: Any, n: int) -> Any:
        hidden = [
            (w[n].T, b[n, 0])
            for w, b in zip(ensemble.weights[:-1], ensemble.biases[:-1], strict=True)
        ]
        head = (ensemble.weights[-1][n], ensemble.biases[-1][n])
        norms = [(s[n], b[n]) for s, b in zip(ensemble.scales, ensemble.shifts, strict=True)]
        return perceptron([*hidden, head], norms)

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, -1)
        normal = Independent(Normal(mean, log_std.clamp(-20, 2).exp()), 1)
        squashed = TransformedDistribution(normal, TanhTransform(cache_size=1))
        before = mean + log_std.clamp(-20, 2).exp() * noise
        actions = squashed.transforms[0](before)
        return actions, squashed.log_prob(actions)

    def update_critics(self, batch: Batch, subset: Tensor, noise: Tensor) -> None:
        with torch.no_grad():
            actions, log_probs = self.act(batch.next_obs, noise)
            inputs = torch.cat([batch.next_obs, actions], -1)
            values = [self.targets[n](inputs).squeeze(-1) for n in subset.tolist()]
            soft = torch.stack(values).min(0).values - self.log_alpha.exp() * log_probs
            y = batch.rewards + OPTIONS["gamma"] * (1 - batch.terminations) * soft
        inputs = torch.cat([batch.obs, batch.actions], -1)
        losses = [((critic(inputs).squeeze(-1) - y) ** 2).mean() for critic in self.critics]
        loss = torch.stack(losses).mean() if self.mean_over_critics else torch.stack(losses).sum()
        self.step(self.critic_adam, loss)
        with torch.no_grad():
            for critic, target in zip(self.critics, self.targets, strict=True):
                for new, old in zip(critic.parameters(), target.parameters(), strict=True):
                    old.copy_((1 - OPTIONS["tau"]) * old + OPTIONS["tau"] * new)

    def update_policy(self, batch: Batch, noise: Tensor) -> None:
        actions, log_probs = self.act(batch.obs, noise)
        inputs = torch.cat([batch.obs, actions], -1)
        values = torch.stack([critic(inputs).squeeze(-1) for critic in self.critics]).mean(0)
        self.step(self.actor_adam, (self.log_alpha.exp().detach() * log_probs - values).mean())
        excess = (log_probs.detach() + self.target_entropy).mean()
        self.step(self.alpha_adam, -self.log_alpha * excess)

    @staticmethod
    def step(adam: torch.optim.Optimizer, loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()
        adam.step()


def watched_update(learner: Any, batch: Batch) -> list[tuple[str, Batch, State]]:
    """One round of the learner: each network that moved, on which rows, with what was drawn."""
    steps: list[tuple[str, Batch, State]] = []
    plain = learner.minimize

    def minimize(name: str, batch: Batch, noise: Any = (), shared: Any = None) -> Any:
        steps.append((name, batch, dict(noise)))
        return plain(name, batch, steps[-1][2], shared)

    learner.minimize = minimize
    learner.update(batch)
    del learner.minimize
    return steps


@pytest.mark.parametrize("name", ["redq", "rlpd"])
def test_rounds_are_those_of_an_independent_implementation(name: str) -> None:
    learner = make(name, **OPTIONS)
    reference = Reference(name, learner)
    before = copy.deepcopy(learner.state_dict())
    for number in range(ROUNDS):
        batch = random_batch(rows=OPTIONS["batch_size"] * UPDATES, seed=number)
        steps = watched_update(learner, batch)
        assert [step for step, _, _ in steps] == ["critic"] * UPDATES + ["actor", "temperature"]
        for part in range(UPDATES):
            rows = slice(part * OPTIONS["batch_size"], (part + 1) * OPTIONS["batch_size"])
            own = Batch(**{field: value[rows] for field, value in batch.fields().items()})
            noise = steps[part][2]
            reference.update_critics(own, noise["subset"], noise["next"])
        reference.update_policy(own, steps[UPDATES][2]["policy"])
    expected = Reference(name, learner)  # the learner's weights, laid out as the reference's
    pairs = [(reference.actor, expected.actor), *zip(reference.critics, expected.critics)]  # noqa: B905
    pairs += [
        (target, Reference.member(learner.target_critic, n))
        for n, target in enumerate(reference.targets)
    ]
    for mine, theirs in pairs:
        for found, wanted in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    alpha = learner.temperature().item()
    assert alpha == pytest.approx(math.exp(reference.log_alpha.item()), abs=1e-6)
    moved = [
        key for key, old in before.items() if (old - learner.state_dict()[key]).abs().max() > 1e-3
    ]
    assert {key.split(".")[0] for key in moved} == {
        "actor",
        "critic",
        "target_critic",
        "temperature",
    }
