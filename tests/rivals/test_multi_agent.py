"""A decision as a game of several agents: who is asked, what they are offered, and that the cluster carries it out."""

import numpy as np
import pytest

from attribution_sched.config import load_settings
from attribution_sched.errors import ModelFitError
from attribution_sched.rivals.arena.by_preset import evaluate
from attribution_sched.rivals.candidate_env import PLAN_FEATURES, CandidateCluster
from attribution_sched.rivals.multi_agent import GAMES, MOST, AgentsPolicy, DomainAgents, TwoLevels


def mask(game, observation):
    """What the observation itself says is allowed: the networks of RLlib read it there."""
    return observation[-game.choices * len(PLAN_FEATURES) :][len(PLAN_FEATURES) - 1 :: len(PLAN_FEATURES)] > 0.5


def run(game, shown, choose):
    """Play a dialogue to its end: the plan, and everything that was shown."""
    asked = []
    try:
        told = next(shown)
        while True:
            asked.append(told)
            told = shown.send({agent: choose(agent, each) for agent, each in told.items()})
    except StopIteration as end:
        return end.value, asked


@pytest.fixture(scope="module")
def decisions():
    """A few decisions of the world whose models must be cut, with their plans."""
    cluster = CandidateCluster(load_settings("cross-domain").build_world(), MOST)
    cluster.reset(3)
    found = []
    for _ in range(25):
        seen, plans = cluster.look()
        if seen is None:
            break
        found.append((seen, plans))
        cluster.carry_out(plans[0] if plans and len(found) % 3 else None)
    assert sum(bool(plans) for _, plans in found) > 5
    return found


@pytest.mark.parametrize("game", [DomainAgents(4), TwoLevels(4)], ids=["domains", "levels"])
def test_whatever_the_masks_allow_is_a_plan_of_the_decision(game, decisions):
    rng = np.random.default_rng(0)
    placed = 0
    for seen, plans in decisions:
        chosen, asked = run(game, game.ask(seen, plans), lambda _, o: int(rng.choice(np.flatnonzero(mask(game, o)))))
        assert chosen is None or chosen in plans
        placed += chosen is not None
        for told in asked:
            for agent, observation in told.items():
                assert agent in game.agents
                assert observation.shape == (game.size,)
                assert np.abs(observation).max() <= 10.0
        assert bool(asked) == bool(plans)
    assert placed > 0


def test_a_domain_is_offered_what_begins_in_it_and_knows_which_it_is(decisions):
    game = DomainAgents(4)
    seen, plans = next((s, p) for s, p in decisions if len({plan.domains[0] for plan in p}) > 1)
    shown = next(game.ask(seen, plans))
    assert set(shown) == {f"domain_{k}" for k in {plan.domains[0] for plan in plans}}
    for agent, observation in shown.items():
        assert observation[:4].argmax() == int(agent[-1]) and observation[:4].sum() == 1.0
    # One takes it, the others pass: it gets its own best.
    taker = sorted(shown)[-1]
    chosen, _ = run(game, game.ask(seen, plans), lambda agent, _: int(agent == taker))
    assert chosen == next(plan for plan in plans if plan.domains[0] == int(taker[-1]))
    assert run(game, game.ask(seen, plans), lambda *_: 0)[0] is None


def test_if_several_domains_take_a_task_the_plan_worth_most_wins(decisions):
    game = DomainAgents(4)
    for seen, plans in decisions:
        if plans:
            chosen, _ = run(game, game.ask(seen, plans), lambda *_: 1)
            # Candidates come best first among those with devices of their own.
            assert chosen == plans[0]


def test_the_lower_agent_chooses_within_the_upper_ones_domains_and_may_not_wait(decisions):
    game = TwoLevels(4)
    seen, plans = next((s, p) for s, p in decisions if len({plan.domains for plan in p}) > 1)
    groups = list(dict.fromkeys(plan.domains for plan in plans))
    chosen, asked = run(game, game.ask(seen, plans), lambda agent, _: 2 if agent == "upper" else 1)
    assert chosen.domains == groups[1]
    assert [list(told) for told in asked] == [["upper"], ["lower"]]
    assert not mask(game, asked[1]["lower"])[0]
    waits, asked = run(game, game.ask(seen, plans), lambda *_: 0)
    assert waits is None and len(asked) == 1


@pytest.mark.parametrize("name", GAMES)
def test_agents_of_another_cluster_are_told_so(name, decisions):
    policy = AgentsPolicy(GAMES[name](1), lambda *_: 0, "mine")
    with pytest.raises(ModelFitError, match=r"domains = 4: mine have learnt in a cluster of 1"):
        policy.decide(decisions[0][0])


@pytest.mark.parametrize("name", GAMES)
def test_agents_play_in_the_arena(name):
    settings = load_settings("cross-domain-easy").model_dump(mode="json")
    settings["episode"]["horizon_s"] = 4 * 3600.0
    settings = load_settings(settings)
    game = GAMES[name](4)
    rng = np.random.default_rng(0)
    policy = AgentsPolicy(game, lambda _, o: int(rng.choice(np.flatnonzero(mask(game, o)))))
    found = evaluate([policy], settings, episodes=1, scenarios=["steady"])
    assert all(record.summary.refused_plans == 0 for record in found.records)
    assert all(record.summary.placed > 0 for record in found.records)


def test_agents_are_explained():
    from attribution_sched import System

    game = TwoLevels(1)
    policy = AgentsPolicy(game, lambda _, o: int(np.flatnonzero(mask(game, o))[-1]))
    with System("testbed", policy=policy, explain=True) as system:
        result = system.schedule_next_task()
        assert result.decision.policy == "agents"
        assert result.explanation is not None
