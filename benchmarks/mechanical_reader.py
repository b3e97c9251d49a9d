"""Is an explanation of use to a reader? Mechanical readers see text or table only, and say what is pursued.

    python benchmarks/mechanical_reader.py --setting all --explanations 50 --seed 3700000 --runs reader.jsonl
    python benchmarks/mechanical_reader.py --runs reader.jsonl --table
    python benchmarks/mechanical_reader.py --runs reader.jsonl --kit examples/reader_kit       # 20 questions for people

A system pursues one of five reward settings. Of its placements, readers are shown the table of alternatives (ΔR_eff,
ΔR_util, ΔR_cost, hours, kWh, $ and g of every choice that fits, against what was done; ΔR, which is weighted, is taken
out) or the text of the explanation (words only, what names a weight taken out). From eight explanations of one setting
each says which of the five it is; chance is 20 %.

* scripted: the setting under which the fewest alternatives of the tables would have been better; no number is learnt
  (of five such rules the best on the earlier explanations)
* table, text: logistic regressions on the first days, judged on the last
* plan only: the same regression on what was done, without any explanation (devices, domains, cut or not)
* randomised: the scripted rule where every decision pursued weights drawn at random, whatever the label says

*After a change*: the same decision under another of the five settings. From its table a reader takes the row of
highest R under the new weights as what the policy will do; the truth is the policy asked again. Beside it: that nothing
changes, and the same rule with random weights.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hi_ppo_presets import played

from attribution_sched import System
from attribution_sched.cluster.decision import Decision
from attribution_sched.cluster.plan import Plan
from attribution_sched.cluster.world import Reward
from attribution_sched.explain.decision_table import decision_table
from attribution_sched.explain.reasoning import reasoning
from attribution_sched.scheduler.policy import twin
from attribution_sched.scheduler.registry import make_policy
from attribution_sched.scheduler.rules import ShortestJobFirst
from attribution_sched.words.say import in_language

SETTINGS: dict[str, tuple[float, float, float]] = {
    "speed": (4.0, 0.25, 0.25),
    "utilisation": (0.5, 4.0, 0.25),
    "cost": (0.5, 0.25, 4.0),
    "speed and utilisation": (2.0, 2.0, 0.0),
    "balanced": (1.0, 1.0, 1.0),
}
"""Name → w_eff, w_util and w_cost."""

COLUMNS = ("r_eff", "r_util", "r_cost", "hours", "kwh", "usd", "carbon_g")
BUNDLE = 8
"""Explanations that a reader is shown together."""

Row = dict[str, Any]


def weighted(reward: Reward, weights: tuple[float, float, float]) -> Reward:
    """A reward with other weights."""
    return replace(reward, w_eff=weights[0], w_util=weights[1], w_cost=weights[2])


def label(plan: Plan | None, own: Plan | None, names: list[str]) -> str:
    """Where, and in the same domains with how many devices."""
    if plan is None:
        return "wait"
    place = "+".join(sorted({names[segment.domain] for segment in plan.segments}))
    mine = own is not None and set(own.domains) == set(plan.domains)
    return f"{place} ×{sum(s.device_count for s in plan.segments)}" if mine else place


def words_of(text: str) -> str:
    """Words only, without those that name a weight."""
    kept = [part for part in re.split(r"(?<=[.;。])\s", text) if not re.search(r"weight|w_(eff|util|cost)", part)]
    return " ".join(re.findall(r"[a-zA-Z_]{3,}", " ".join(kept)))


def shown(system: System, name: str, own: tuple[float, float, float]) -> Row | None:
    """One explanation as readers see it, and what the policy does under each setting."""
    decided = system.questions.recall(name)
    view, plan = decided.view, decided.plan
    if view.replanning or plan is None:
        return None
    # What would make an alternative win is not shown to readers: whoever is asked about that need not be the policy.
    table = decision_table(ShortestJobFirst(), decided, futures=0)
    names = [domain.name for domain in view.cost.cluster.domains]
    rows, labels = [], []
    for each in table.rows:
        if each.missing:
            continue
        figures = [getattr(each, column) for column in COLUMNS]
        if each.chosen:
            rows.append([0.0] * len(COLUMNS))
            labels.append(label(plan, plan, names))
        elif all(figure is not None for figure in figures):
            rows.append([float(figure) for figure in figures])
            what = in_language(each.what, "en")
            same = tuple(sorted(each.domains)) == tuple(sorted({names[d] for d in plan.domains}))
            labels.append(devices_of(what, each.domains) if same else "+".join(sorted(each.domains)))
    if len(rows) < 3:
        return None
    after, policy = {}, twin(system.policy)
    for setting, weights in SETTINGS.items():
        other = replace(view, reward=weighted(view.reward, weights))
        made = decide_alone(policy, other)
        after[setting] = label(made, plan, names)
    devices = sum(segment.device_count for segment in plan.segments)
    about = [devices, len(set(plan.domains)), float(np.asarray(view.free_devices).sum()), len(view.queue)]
    text = words_of(f"{in_language(table.sentence, 'en')} {reasoning(system.explain(name), 'en')}")
    return {"rows": rows, "labels": labels, "plan": about, "text": text, "after": after, "weights": list(own),
            "sentence": in_language(table.sentence, "en")}  # fmt: skip


def devices_of(what: str, domains: tuple[str, ...]) -> str:
    """Label of a choice in the same domains, by its words."""
    many = sum(int(number) for number in re.findall(r"×(\d+)", what))
    return f"{'+'.join(sorted(domains))} ×{many}"


def decide_alone(policy: Any, view: Decision) -> Plan | None:
    """What a policy does with the view's task."""
    found: Plan | None = policy.decide(view)
    return found


def collect(given: argparse.Namespace) -> None:
    """Run days of each setting until enough was explained."""
    rng = np.random.default_rng(given.seed)
    wanted = [*SETTINGS, "randomised"] if given.setting == "all" else [given.setting]
    for setting in wanted:
        rows = [row for row in played(given.runs) if row["setting"] == setting]
        day = len({row["seed"] for row in rows})
        while len(rows) < given.explanations:
            seed = given.seed + 100 * [*SETTINGS, "randomised"].index(setting) + day
            with System(given.preset, policy=make_policy(given.policy), seed=seed) as system:
                weights = SETTINGS.get(setting, (1.0, 1.0, 1.0))
                while system.journal.count() < given.decisions:
                    if setting == "randomised":
                        weights = tuple(SETTINGS[str(rng.choice(list(SETTINGS)))])  # type: ignore[assignment]
                    system.reward = weighted(system.reward, weights)
                    if system.schedule_next_task() is None:
                        break
                    last = system.journal.decision(f"d{system.journal.count() - 1:06d}")
                    if last.plan is None:
                        continue
                    row = shown(system, last.id, weights)
                    if row is not None:
                        rows.append(row | {"setting": setting, "seed": seed, "decision": last.id})
                        with given.runs.open("a") as file:
                            file.write(json.dumps(rows[-1]) + "\n")
                    if len(rows) >= given.explanations:
                        break
            day += 1


def scripted(rows: list[Row]) -> str:
    """The setting under which the fewest alternatives would have been better, by the tables alone."""
    better = {}
    for setting, weights in SETTINGS.items():
        signed = np.array([weights[0], weights[1], -weights[2]])
        # What was done is the first row, all zeros.
        better[setting] = np.mean([float((np.array(row["rows"])[:, :3] @ signed > 1e-9).mean()) for row in rows])
    return min(better, key=lambda each: float(better[each]))


def table_features(row: Row) -> list[float]:
    """Best, worst and mean of each column over the alternatives."""
    rest = np.array(row["rows"])[1:]
    return [*rest.max(axis=0), *rest.min(axis=0), *rest.mean(axis=0), float(len(rest))]


def bundles(rows: list[Row], rng: np.random.Generator, count: int) -> list[tuple[str, list[Row]]]:
    """Draws of explanations of one setting."""
    made = []
    for setting in SETTINGS:
        own = [row for row in rows if row["setting"] == setting]
        made += [(setting, [own[i] for i in rng.choice(len(own), BUNDLE, replace=False)]) for _ in range(count)]
    return made


def halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Explanations of each setting, the earlier half to learn from and the later to judge on."""
    early, late = list[Row](), list[Row]()
    for setting in SETTINGS:
        own = [row for row in rows if row["setting"] == setting]
        early += own[: len(own) // 2]
        late += own[len(own) // 2 :]
    return early, late


def learnt(early: list[Row], late: list[Row], features: Any, text: bool, rng: np.random.Generator) -> list[bool]:
    """Whether a regression names the setting of each draw of the later explanations."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    model: Any = make_pipeline(CountVectorizer(min_df=2), MaxAbsScaler(), LogisticRegression(max_iter=2000))
    if not text:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit([features(row) for row in early], [row["setting"] for row in early])
    right = []
    for setting, some in bundles(late, rng, 40):
        chances = model.predict_log_proba([features(row) for row in some]).sum(axis=0)
        right.append(model.classes_[int(chances.argmax())] == setting)
    return right


def told(right: list[bool]) -> str:
    """A share with its 95 % interval by Wilson, draws taken as they are."""
    n, p, z = len(right), float(np.mean(right)), 1.96
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return f"{p:.2f} [{(middle - half) / (1 + z * z / n):.2f}, {(middle + half) / (1 + z * z / n):.2f}]"


def table(rows: list[Row], seed: int) -> str:
    """All readers."""
    rng = np.random.default_rng(seed)
    early, late = halves(rows)
    guesses = [scripted(some) == setting for setting, some in bundles(late, rng, 40)]
    drawn = [row for row in rows if row["setting"] == "randomised"]
    blind = []
    for setting in SETTINGS:
        for _ in range(40):
            some = [drawn[i] for i in rng.choice(len(drawn), BUNDLE, replace=False)] if drawn else []
            blind += [scripted(some) == setting] if some else []
    lines = [
        f"{len(early)} explanations to learn from, {len(late)} to judge on, draws of {BUNDLE}; intervals take draws as "
        "independent, which those of one day are not",
        "", "| reader | names the setting (chance 0.20) |", "|---|---|",
        f"| scripted rule, table | {told(guesses)} |",
        f"| regression, table | {told(learnt(early, late, table_features, False, rng))} |",
        f"| regression, words | {told(learnt(early, late, lambda row: row['text'], True, rng))} |",
        f"| plan only | {told(learnt(early, late, lambda row: row['plan'], False, rng))} |",
    ]  # fmt: skip
    if blind:
        lines.append(f"| scripted rule, weights drawn at random at every decision | {told(blind)} |")
    good, same, random_, changed = list[bool](), list[bool](), list[bool](), list[bool]()
    for row in [row for row in rows if row["setting"] in SETTINGS]:
        figures = np.array(row["rows"])[:, :3]
        for setting, weights in SETTINGS.items():
            if setting == row["setting"]:
                continue
            truth = row["after"][setting]
            other = rng.dirichlet(np.ones(3)) * 3.0
            for told_by, found in ((weights, good), (tuple(other), random_)):
                at = int((figures @ np.array([told_by[0], told_by[1], -told_by[2]])).argmax())
                found.append(row["labels"][at] == truth)
            same.append(row["labels"][0] == truth)
            changed.append(not same[-1])
    moved = np.array(changed)
    lines += [
        "", f"After a change of weights: {len(good)} pairs, the policy does otherwise in {moved.mean():.0%}", "",
        "| reader | right, all pairs | right, where the policy does otherwise |", "|---|---|---|",
        f"| table under the new weights | {told(good)} | {told(list(np.array(good)[moved]))} |",
        f"| nothing changes | {told(same)} | {told(list(np.array(same)[moved]))} |",
        f"| table under random weights | {told(random_)} | {told(list(np.array(random_)[moved]))} |",
    ]  # fmt: skip
    return "\n".join(lines)


def as_table(row: Row) -> str:
    """A table of alternatives as a person is shown it."""
    heads = "| | ΔR_eff | ΔR_util | ΔR_cost | Δh | ΔkWh | Δ$ | Δg |\n|---|---|---|---|---|---|---|---|"
    lines = [
        f"| {name}{' ✔' if i == 0 else ''} | " + " | ".join(f"{value:+.3g}" if value else "0" for value in each) + " |"
        for i, (name, each) in enumerate(zip(row["labels"], row["rows"], strict=True))
    ]
    return "\n".join([row["sentence"], "", heads, *lines, ""])


def kit(rows: list[Row], seed: int, folder: Path) -> None:
    """Twenty questions for people, and their answers in a file of their own."""
    rng = np.random.default_rng(seed)
    weights = "; ".join(f"*{name}* {values}" for name, values in SETTINGS.items())
    lines = [
        "# Can you tell what it is after?", "",
        "Twenty questions about explanations of a scheduler. It pursues one of five settings, weights of R_eff (time",
        "saved), R_util (devices kept busy) and R_cost (money over the baseline's, which counts against):", "",
        f"{weights}.", "",
        "Each table shows what was done (✔) and what else fitted: differences of each term against what was done,",
        "hours, kWh, dollars and grams of CO2-equivalent. Weights and weighted sums are left out. Write down your",
        "answers, then look into `answers.md`. Of the first ten, two are right by chance.", "",
    ]  # fmt: skip
    answers = ["# Answers", ""]
    own = [row for row in rows if row["setting"] in SETTINGS]
    asked = rng.permutation([*SETTINGS, *SETTINGS])
    other = [(row, each) for row in own for each in SETTINGS if each != row["setting"]]
    pairs = [[(r, s) for r, s in other if (r["after"][s] == r["labels"][0]) == same] for same in (True, False)]
    for number in range(1, 21):
        lines += [f"## {number}", ""]
        if number <= 10:
            setting = str(asked[number - 1])
            some = [row for row in own if row["setting"] == setting]
            lines += [as_table(some[at]) for at in rng.choice(len(some), 3, replace=False)]
            lines += [f"Which of the five does it pursue: {', '.join(SETTINGS)}?", ""]
            answers.append(f"{number}. {setting}")
        else:
            # In every second one the policy does otherwise.
            row, setting = pairs[number % 2][int(rng.integers(len(pairs[number % 2])))]
            lines += [as_table(row), f"The setting becomes *{setting}* {SETTINGS[setting]}. What does it do now?", ""]
            answers.append(f"{number}. {row['after'][setting]} (before: {row['labels'][0]})")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "questions.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "answers.md").write_text("\n".join([*answers, ""]), encoding="utf-8")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cross-domain")
    parser.add_argument("--policy", default="hi-ppo[quick]")
    parser.add_argument("--setting", help="all, randomised, or one of the five")
    parser.add_argument("--explanations", type=int, default=50, help="of each setting")
    parser.add_argument("--decisions", type=int, default=150, help="of a day at most")
    parser.add_argument("--seed", type=int, default=3_700_000)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--kit", type=Path)
    given = parser.parse_args()
    if given.setting:
        collect(given)
    if given.table:
        print(table(played(given.runs), given.seed))
    if given.kit:
        kit(played(given.runs), given.seed, given.kit)


if __name__ == "__main__":
    main()
