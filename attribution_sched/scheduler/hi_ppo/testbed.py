"""The lower agent alone on a node: the testbed's 64 actions as device, numeric format and microbatch level.

It is the same :class:`~attribution_sched.scheduler.hi_ppo.network.LowerPolicy` that lays out stages of a cross-domain
plan, with the four devices of the node in the place of layouts and nothing handed down from above. Train it with
:class:`~attribution_sched.scheduler.ppo.flat.FlatAgent`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attribution_sched.cluster.engine.engine import DOMAIN_FEATURES, GROUPS
from attribution_sched.cluster.world import BATCH_LEVELS
from attribution_sched.planning.memory_feasibility import FORMATS
from attribution_sched.scheduler.hi_ppo.features import LOWER_NAMES
from attribution_sched.scheduler.hi_ppo.network import COMPONENTS, LowerPolicy, NetworkSize, orthogonal_heads
from attribution_sched.scheduler.hi_ppo.partial_plans import FORMAT_CHOICE, LEVEL_CHOICE
from attribution_sched.scheduler.ppo.policy import Decision, chosen, entropy, masked_log_softmax, sample
from attribution_sched.scheduler.ppo.ppo import Evaluation
from attribution_sched.scheduler.ppo.quick_tanh import Tanh

DEVICE_NUMBERS: tuple[str, ...] = ("gpu_utilisation", "memory_utilisation", "memory_bandwidth", "pcie_bandwidth")
"""What is known of each of the four devices."""

SMALL = NetworkSize(width=64, hidden=32)
"""Enough for one node."""


class TestbedPolicy(nn.Module):
    """Lower agent and critic for ``Testbed-v0``.

    Args:
        generator: Source of the first weights.
        size: How large.
    """

    __test__ = False

    def __init__(self, generator: torch.Generator, size: NetworkSize = SMALL) -> None:
        super().__init__()
        self.lower = LowerPolicy(size, handed=0, layout=len(DEVICE_NUMBERS))
        self.critic = nn.Sequential(
            nn.Linear(len(LOWER_NAMES), size.width), Tanh(), nn.Linear(size.width, size.width), Tanh(),
            nn.Linear(size.width, len(COMPONENTS)),
        )  # fmt: skip
        orthogonal_heads(self, generator)
        at = [[DOMAIN_FEATURES.index(f"{name}_{g}") for name in DEVICE_NUMBERS] for g in range(GROUPS)]
        self.register_buffer("_device", torch.tensor(at), persistent=False)
        formats, levels = torch.zeros(FORMATS, FORMAT_CHOICE), torch.zeros(BATCH_LEVELS, LEVEL_CHOICE)
        formats[:, :FORMATS], levels[:, :BATCH_LEVELS] = torch.eye(FORMATS), torch.eye(BATCH_LEVELS)
        self.register_buffer("_formats", formats, persistent=False)
        self.register_buffer("_levels", levels, persistent=False)

    def sample(self, obs: Tensor, mask: Tensor, generator: torch.Generator | None) -> Decision:
        """Draw actions; the most probable ones where ``generator`` is None."""
        action, log_prob, _ = self._decide(obs, mask, None, generator)
        return Decision(action, log_prob, self.critic(obs))

    def evaluate(self, obs: Tensor, mask: Tensor, action: Tensor) -> Evaluation:
        """Log-probability of given actions, entropy and values, with gradients."""
        _, log_prob, spread = self._decide(obs, mask, action, None)
        return Evaluation(log_prob, spread, self.critic(obs))

    def values(self, obs: Tensor) -> Tensor:
        """Values only, shape ``(b, 3)``."""
        found: Tensor = self.critic(obs)
        return found

    def _decide(
        self, obs: Tensor, mask: Tensor, action: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Device, then format, then level, each among what the 64-action mask leaves of it."""
        b = len(obs)
        row = torch.arange(b, device=obs.device)
        allowed = mask.reshape(b, GROUPS, FORMATS, BATCH_LEVELS)
        z = self.lower.see(obs)
        devices = obs[:, self.get_buffer("_device")]
        asked: list[Tensor | None] = [None, None, None]
        if action is not None:
            size = FORMATS * BATCH_LEVELS
            asked = [action // size, action // BATCH_LEVELS % FORMATS, action % BATCH_LEVELS]
        device, first, first_spread = _choice(
            self.lower.layout(devices, z), allowed.flatten(2).any(dim=2), asked[0], generator
        )
        own = devices[row, device]
        formats = self.get_buffer("_formats").expand(b, -1, -1)
        left = allowed[row, device]
        precision, second, second_spread = _choice(
            self.lower.format(formats, torch.cat([z, own], dim=-1)), left.any(dim=2), asked[1], generator
        )
        told = torch.cat([z, own, formats[row, precision]], dim=-1)
        levels = self.get_buffer("_levels").expand(b, -1, -1)
        level, third, third_spread = _choice(self.lower.level(levels, told), left[row, precision], asked[2], generator)
        found = (device * FORMATS + precision) * BATCH_LEVELS + level
        return found, first + second + third, first_spread + second_spread + third_spread


def _choice(
    logits: Tensor, mask: Tensor, asked: Tensor | None, generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """What is taken (or was asked about), its log-probability, and the entropy."""
    log_probs = masked_log_softmax(logits, mask)
    taken = sample(log_probs, generator) if asked is None else asked
    return taken, chosen(log_probs, taken), entropy(log_probs)
