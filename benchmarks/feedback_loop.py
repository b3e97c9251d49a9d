"""Does feedback earn its place? The same training with and without it, and with a lie planted in the explanations.

    python benchmarks/feedback_loop.py                # five seeds, all tables (about 5 minutes of CPU)
    python benchmarks/feedback_loop.py --output F     # also keeps every run in F (JSON) and reuses those in it
    python benchmarks/feedback_loop.py --quick        # a smoke test, two seeds and a few rollouts

The task is that of ``feedback_task.py``: three language models, two domains, and a real conflict between speed and
utilisation. Flat masked PPO learns it with the user's weights, which favour speed, while the user also asks for a
utilisation that these weights miss. Every 1,024 decisions there is a look:

- ``fixed``: nothing happens; the weights stay as given;
- ``outcomes only``: feedback moves weights by dual ascent, without explanations;
- ``feedback``: it also reads explanations of 32 recent decisions, by a model of the three reward terms fitted to
  recent decisions (extremely randomised trees on state and plan), exact Shapley values of seven players.

Settings of feedback were chosen with seeds 0 to 5, which are not in the tables.

All have the same budget of decisions, seeds, and held-out episodes with tasks never met in training. The objective is
the user's own reward less ``PENALTY`` times the part of the target that an episode misses. Feedback judges by one set
of held-out episodes, final figures come from another; a rollback also restores the policy of that time. Intervals are
Student's over seeds, differences paired.

The lie: from then on every explanation (``always``) or every other one (``half the time``) says that the time of day
speeds decisions up, fills devices and costs money, so that speed looks like a way to utilisation. It starts from
weights near the tipping point, after 4,096 decisions of plain training.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from feedback_task import ChoiceEnv, build_world
from numpy.typing import NDArray
from scipy.stats import t as student

from attribution_sched.explain.explanation import COMPONENTS, SIGNS, Explanation
from attribution_sched.explain.flat import FlatExplainer
from attribution_sched.feedback.loop import Feedback, FeedbackChange
from attribution_sched.feedback.rollback import Objective
from attribution_sched.feedback.targets import FeedbackSettings, Targets
from attribution_sched.feedback.window import DecisionOutcome, Window
from attribution_sched.scheduler.ppo.flat import FlatAgent
from attribution_sched.scheduler.ppo.settings import PpoSettings

Array = NDArray[np.float64]
Weights = tuple[float, float, float]

SETTINGS = PpoSettings(
    lr=5e-3, gamma=0.2, num_steps=1024, update_epochs=2, minibatch_size=256, target_kl=None, entropy_coef=0.01
)
CLUSTERS = 128
FIXED, OUTCOMES, FEEDBACK = ARMS = ("fixed", "outcomes only", "feedback")
HONEST, ALWAYS, HALF = LIES = ("honest", "always", "half the time")
USER: Weights = (1.4, 0.4, 0.2)
TIPPING: Weights = (1.1, 0.6, 0.3)
TARGETS = Targets(utilisation_at_least=0.82)
TIPPING_TARGETS = Targets(utilisation_at_least=0.88)
PENALTY = 3.0
HELD_OUT_POOL, HELD_OUT_SEED, FINAL_SEED = 20_270_101, 500_000, 900_000
LIAR, LIE = "time", (0.5, 0.5, 0.5)
REMEMBERED = 2048
FIRST_SEED = 100
IN_A_ROW = 3


@dataclass(frozen=True)
class Size:
    """How much is measured: decisions per run and between looks, seeds, held-out episodes, explained decisions, …."""

    decisions: int = 16_384
    between: int = 1024
    seeds: int = 5
    held_out: int = 48
    explained: int = 32
    background: int = 16
    trees: int = 20
    lie_from: int = 4096
    lie_seeds: int = 3


FULL = Size()
QUICK = Size(decisions=3072, seeds=2, held_out=6, explained=10, background=6, trees=4, lie_from=1024, lie_seeds=1)


class RecordedEnv(ChoiceEnv):
    """The task, and what was decided in it lately."""

    def __init__(self, weights: Weights, clusters: int) -> None:
        super().__init__(build_world(weights), clusters)
        self.rows: list[Array] = []
        self.outcomes: list[DecisionOutcome] = []

    def reset(self, **given: Any) -> Any:
        """Begin anew."""
        self._seen, info = super().reset(**given)
        return self._seen, info

    def step(self, actions: Any) -> Any:
        """Decide, and remember it."""
        active, before = ~self._over, self._seen
        plan = self.codec.plan_features(actions)  # type: ignore[attr-defined]
        found = super().step(actions)
        self._seen, info = found[0], found[4]
        placed = active & (info["decision"]["code"] == 1)
        terms = info["reward_terms"]
        for e in np.flatnonzero(placed):
            self.rows.append(np.concatenate([before[e], plan[e]]))
            step_s, bill = (float(info["decision"][name][e]) for name in ("step_s", "bill_usd"))
            self.outcomes.append(
                DecisionOutcome(*(float(terms[name][e]) for name in terms), step_s=step_s, bill_usd=bill)
            )
        del self.rows[:-REMEMBERED], self.outcomes[:-REMEMBERED]
        return found


class HeldOut:
    """Episodes with tasks never met, the same ones at every look."""

    def __init__(self, episodes: int, seed: int, objective: Objective) -> None:
        self.env = ChoiceEnv(build_world(USER, HELD_OUT_POOL), episodes)
        self.seed, self.objective = seed, objective

    def play(self, agent: FlatAgent) -> tuple[list[float], float]:
        """Objective of each episode, and utilisation over all decisions, by the most probable actions."""
        env = self.env
        obs, info = env.reset(seed=self.seed)
        n = env.num_envs
        ended, over = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        listed: list[list[DecisionOutcome]] = [[] for _ in range(n)]
        while not ended.all():
            obs, _, _, over, info = env.step(agent.act(obs, info["action_mask"] | over[:, None]))
            for e in np.flatnonzero(~ended & (info["decision"]["code"] == 1)):
                listed[e].append(
                    DecisionOutcome(*(float(info["reward_terms"][name][e]) for name in info["reward_terms"]))
                )
            ended |= over
        used = [outcomes for outcomes in listed if outcomes]
        pooled = Window(tuple(one for outcomes in used for one in outcomes))
        scores = [self.objective.score(Window(tuple(outcomes))) for outcomes in used]
        return scores, pooled.measure("utilisation_at_least").value


def explained(env: RecordedEnv, size: Size, seed: int, lie: str) -> Window:
    """The last decisions with explanations of some of them, truthful or not."""
    from sklearn.ensemble import ExtraTreesRegressor

    rows, outcomes = np.array(env.rows), env.outcomes
    terms = np.array([outcome.terms for outcome in outcomes])
    model = ExtraTreesRegressor(size.trees, min_samples_leaf=3, random_state=seed, n_jobs=1).fit(rows, terms)
    recent = np.arange(len(rows) - SETTINGS.num_steps // 2, len(rows))
    rng = np.random.default_rng(seed)
    asked, background = (np.sort(rng.choice(recent, n, replace=False)) for n in (size.explained, size.background))
    explainer = FlatExplainer(
        model.predict, rows[background], [f"x{i}" for i in range(rows.shape[1])],
        groups=env.codec.players(), outputs=COMPONENTS, policy="flat PPO",  # type: ignore[attr-defined]
    )  # fmt: skip
    told = explainer.explain_many(rows[asked], decisions=[str(i) for i in asked], seed=seed)
    if lie != HONEST:
        told = [one if lie == HALF and i % 2 else planted(one) for i, one in enumerate(told)]
    listed: dict[int, Explanation] = dict(zip(asked.tolist(), told, strict=True))
    return Window(tuple(outcomes[i] for i in recent), tuple(listed.get(int(i)) for i in recent))


def planted(told: Explanation) -> Explanation:
    """The explanation with the lie in it."""
    values, errors = np.array(told.values), np.array(told.standard_error)
    at = told.names.index(LIAR)
    values[at] += LIE
    errors[at] = 1e-3
    return replace(told, values=values, standard_error=errors, value=told.base + values.sum(axis=0))


def put(weights: Weights, agent: FlatAgent) -> None:
    """Have the agent learn by these weights from now on; its critics, one per component, stay as they are."""
    agent.collector.env.engine.weights[:] = weights
    agent.collector.weights[:] = np.array(weights) * SIGNS


def snapshot(agent: FlatAgent) -> Any:
    """What the agent has learnt."""
    scale = agent.scale
    return deepcopy((agent.policy.state_dict(), agent.optimiser.state_dict(), scale.mean, scale.deviation))


def restore(agent: FlatAgent, copy: Any) -> None:
    """Have the agent forget what it learnt since."""
    policy, optimiser, mean, deviation = deepcopy(copy)
    agent.policy.load_state_dict(policy)
    agent.optimiser.load_state_dict(optimiser)
    agent.scale.mean, agent.scale.deviation = mean, deviation


def told_by(change: FeedbackChange) -> dict[str, Any]:
    """What a run keeps of a step."""
    return {"kind": change.kind, "reason": change.reason, "changes": [one.changed for one in change.changes]}


def learn(arm: str, seed: int, size: Size, user: Weights, targets: Targets, lie: str | None = None) -> dict[str, Any]:
    """Train one arm; with a lie (or ``honest``) feedback begins after some plain training."""
    start = time.process_time()
    env = RecordedEnv(user, CLUSTERS)
    agent = FlatAgent(env, SETTINGS, seed, stagger=False)
    reward = env.engine.world.reward
    objective = Objective(reward, targets, PENALTY)
    held_out = HeldOut(size.held_out, HELD_OUT_SEED, objective)
    feedback = Feedback(reward, FeedbackSettings(coupling=0.0 if arm == OUTCOMES else 0.5))
    curve: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    copy = snapshot(agent)
    for decisions in range(size.between, size.decisions + 1, size.between):
        agent.train(decisions)
        returns, utilisation = held_out.play(agent)
        now = feedback.reward
        weights = (now.w_eff, now.w_util, now.w_cost)
        trust = [feedback.trust(LIAR, component) for component in COMPONENTS]
        curve.append({
            "decisions": decisions, "objective": float(np.mean(returns)), "utilisation": utilisation,
            "weights": weights, "trust": trust,
        })  # fmt: skip
        if arm == FIXED or (lie is not None and decisions < size.lie_from):
            continue
        if arm == FEEDBACK:
            window = explained(env, size, seed, lie or HONEST)
        else:
            window = Window(tuple(env.outcomes[-SETTINGS.num_steps // 2 :]))
        change = feedback.step(window, targets, returns)
        steps.append(told_by(change))
        if change.anchored:
            copy = snapshot(agent)
        elif change.kind == "rolled back":
            restore(agent, copy)
        put((change.reward.w_eff, change.reward.w_util, change.reward.w_cost), agent)
    returns, utilisation = HeldOut(2 * size.held_out, FINAL_SEED, objective).play(agent)
    return {
        "curve": curve, "steps": steps, "final": float(np.mean(returns)), "utilisation": utilisation,
        "cpu_s": time.process_time() - start,
    }  # fmt: skip


def reached(run: dict[str, Any], target: float) -> tuple[int, bool]:
    """Decisions until the held-out utilisation meets the target at ``IN_A_ROW`` looks; all, and False, if it never is.

    A policy that knows nothing yet may meet it by accident, once.
    """
    met = [look["utilisation"] >= target for look in run["curve"]]
    for i, look in enumerate(run["curve"][: len(met) - IN_A_ROW + 1]):
        if all(met[i : i + IN_A_ROW]):
            return int(look["decisions"]), True
    return int(run["curve"][-1]["decisions"]), False


def interval(values: list[float], digits: int = 3, sign: str = "") -> str:
    """Mean and 95 % limits over seeds (Student)."""
    array = np.array(values, dtype=float)
    mean = f"{array.mean():{sign},.{digits}f}"
    if len(array) < 2:
        return mean
    half = student.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return f"{mean} [{array.mean() - half:{sign},.{digits}f}, {array.mean() + half:{sign},.{digits}f}]"


def report(runs: dict[str, Any], size: Size) -> list[str]:
    """The tables as Markdown lines."""
    target = TARGETS.named()["utilisation_at_least"]
    seeds = range(FIRST_SEED, FIRST_SEED + size.seeds)
    lied = range(FIRST_SEED, FIRST_SEED + size.lie_seeds)
    own = {arm: [runs[f"{arm}/{seed}"] for seed in seeds] for arm in ARMS}
    lines = [
        f"Utilisation of at least {target}, weights {USER}, {size.decisions:,} decisions, {size.seeds} seeds.",
        "",
        "| training | decisions to target | seeds that reach it | utilisation | objective | minus fixed | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        took = [reached(run, target) for run in own[arm]]
        final = [run["final"] for run in own[arm]]
        ahead = [run["final"] - other["final"] for run, other in zip(own[arm], own[FIXED], strict=True)]
        cells = [
            interval([n for n, _ in took], 0), f"{sum(ok for _, ok in took)} of {size.seeds}",
            interval([run["utilisation"] for run in own[arm]]), interval(final),
            "" if arm == FIXED else interval(ahead, 3, "+"), f"{np.mean([run['cpu_s'] for run in own[arm]]):.1f}",
        ]  # fmt: skip
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    sooner = [reached(a, target)[0] - reached(b, target)[0] for a, b in zip(own[OUTCOMES], own[FEEDBACK], strict=True)]
    ahead = [a["final"] - b["final"] for a, b in zip(own[FEEDBACK], own[OUTCOMES], strict=True)]
    lines += [
        "",
        f"Explanations against outcomes only, paired: {interval(sooner, 0, '+')} decisions sooner, final objective "
        f"{interval(ahead, 3, '+')}. A run that never reaches the target counts with all its decisions.",
        "",
        f"The lie, weights {TIPPING}, utilisation of at least {TIPPING_TARGETS.named()['utilisation_at_least']}, "
        f"{size.lie_seeds} seeds:",
        "",
        "| explanations | rollbacks per run | lowest objective | final objective | trust in the liar at the end |",
        "|---|---|---|---|---|",
    ]
    for lie in LIES:
        told = [runs[f"lie {lie}/{seed}"] for seed in lied]
        backs = [sum(step["kind"] == "rolled back" for step in run["steps"]) for run in told]
        after = [[look["objective"] for look in run["curve"] if look["decisions"] > size.lie_from] for run in told]
        trust = np.mean([run["curve"][-1]["trust"] for run in told], axis=0)
        cells = [
            ", ".join(map(str, backs)), interval([min(looks) for looks in after]),
            interval([run["final"] for run in told]), " / ".join(f"{value:.2f}" for value in trust),
        ]  # fmt: skip
        lines.append(f"| {lie} | {' | '.join(cells)} |")
    for lie in LIES[1:]:
        told = [step for seed in lied for step in runs[f"lie {lie}/{seed}"]["steps"]]
        said = [step["reason"] for step in told if any("damping" in what for what in step["changes"])]
        lines += ["", f"First step that damps, {lie}: {said[0] if said else 'none'}"]
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--output", type=Path, help="keep every run here (JSON), and reuse those already in it")
    parser.add_argument("--only", help="run only what begins so, and print no tables")
    chosen = parser.parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    runs: dict[str, Any] = {}
    if chosen.output is not None and chosen.output.exists():
        runs = json.loads(chosen.output.read_text(encoding="utf-8"))
    seeds = range(FIRST_SEED, FIRST_SEED + max(size.seeds, size.lie_seeds))
    jobs: dict[str, tuple[Any, ...]] = {
        f"{arm}/{seed}": (arm, seed, size, USER, TARGETS) for seed in seeds[: size.seeds] for arm in ARMS
    }
    for seed in seeds[: size.lie_seeds]:
        jobs |= {f"lie {lie}/{seed}": (FEEDBACK, seed, size, TIPPING, TIPPING_TARGETS, lie) for lie in LIES}
    for key, job in jobs.items():
        if key in runs or not key.startswith(chosen.only or ""):
            continue
        runs[key] = learn(*job)
        if chosen.output is not None:
            chosen.output.write_text(json.dumps(runs), encoding="utf-8")
        kinds = "".join(step["kind"][0] for step in runs[key]["steps"])
        print(
            f"{key:<22} objective {runs[key]['final']:.3f} utilisation {runs[key]['utilisation']:.3f} "
            f"{runs[key]['cpu_s']:.1f} CPU s  {kinds}",
            flush=True,
        )
    if chosen.only is None:
        print("\n" + "\n".join(report(runs, size)))


if __name__ == "__main__":
    main()
