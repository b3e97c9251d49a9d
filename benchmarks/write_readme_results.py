"""Write the results table of the README from the pages that benchmarks and measurements have filled.

    python benchmarks/write_readme_results.py

A row names the page and the words around each figure there; only the figures are taken over. A figure that is no longer
found is an error, so the README cannot say what the pages do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BEGIN, END = "<!-- results -->", "<!-- /results -->"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: The question.
        measured: The answer, with the figures' names in braces.
        beside: What it is compared with.
        page: Page under ``docs/`` that has the figures.
        figures: Patterns with named groups, searched in the page.
        command: How it was measured.
    """

    what: str
    measured: str
    beside: str
    page: str
    figures: tuple[str, ...]
    command: str

    def line(self, text: str) -> str:
        """The line of the table, with figures from the page's text.

        Raises:
            LookupError: If a figure is not there.
        """
        found: dict[str, str] = {}
        for pattern in self.figures:
            match = re.search(pattern, text, re.MULTILINE)
            if match is None:
                raise LookupError(f"docs/{self.page}: nothing there matches {pattern!r}; adapt the row or the page")
            found |= match.groupdict()
        cells = (self.what, self.measured, self.beside, f"[`{self.command}`](docs/{self.page})")
        return "| " + " | ".join(cell.format(**found) for cell in cells) + " |"


N = r"[−+-]?[\d,]+(?:\.\d+)?"
"""A number."""


def _arena(policy: str, name: str, column: int) -> str:
    """The figure of a policy in a column of the first table of Hi-PPO's arena."""
    return rf"^\| \**{policy}\** \|(?: [^|]*\|){{{column}}} \**(?P<{name}>{N})"


ROWS = (
    Row(
        "J1 · joules of fresh tasks by counters, `cross-domain-easy` and `testbed` (10,000 each); with 2–4 of 7 hidden",
        "median error {cross} and {bed} %, R² within a kind {r_cross} and {r_bed} (0.7 wanted); "
        "parts {cut_cross} and {cut_bed} off",
        "the mean in place of EmSHAP {mean_cross} and {mean_bed}; regression {reg_cross} and {reg_bed}, beyond the "
        "interval",
        "results_accounts.md",
        (
            rf"^\| cross-domain-easy \| (?P<cross>{N}) % \| (?P<r_cross>{N}) ",
            rf"^\| testbed \| (?P<bed>{N}) % \| (?P<r_bed>{N}) ",
            rf"^\| cross-domain-easy \| (?P<cut_cross>{N}) \| (?P<mean_cross>{N}) \([^|]*\| (?P<reg_cross>{N}) ",
            rf"^\| testbed \| (?P<cut_bed>{N}) \| (?P<mean_bed>{N}) \([^|]*\| (?P<reg_bed>{N}) ",
        ),
        "python benchmarks/attribution_accounts.py",
    ),
    Row(
        "J4 · what Hi-PPO's agents learnt: return a day over the rule they begin at, fresh days, no thinking; thinking",
        "±30 % network {learnt} (200 days), testbed {bed}; thinking {think} (±30 % network, 64 days), where "
        "models must be cut (`cross-domain`, 42 days) {cross}. PPO on the fork's advantage, over these agents without "
        "thinking: testbed {ranker} a day, elsewhere nothing certain",
        "not learnt 0, the ranker's weights shuffled {shuffled}; the rule itself with the fork {fork}: {behind} "
        "behind the agents' thinking, on the testbed {ahead}, on `cross-domain` level. With thinking the ranker adds "
        "**nothing certain**",
        "results_hi_ppo.md",
        (
            rf"^\| `ou30` \| pace and vector \| (?P<learnt>{N})", rf"^\| `testbed` \| pace and vector \| (?P<bed>{N})",
            rf"^\| learnt, thinking \|[^|]*\| \*\*(?P<think>{N} \[[^]]*\])\*\*",
            rf"^\| teacher, thinking \|[^|]*\| \*\*(?P<fork>{N} \[[^]]*\])\*\*",
            rf"\(40 from 4750000\) \| \*\*(?P<ranker>{N} ± {N})\*\* \| (?P<shuffled>{N} ± {N})",
            rf"Learnt − teacher, both thinking: \*\*(?P<behind>{N} \[[^]]*\])",
            rf"both with the fork: \*\*(?P<ahead>{N} \[[^]]*\])\*\*, ahead in",
            rf"^\| `rule` \| {N} \| (?P<cross>{N} \[[^]]*\])",
        ),
        "python benchmarks/fork_gain.py",
    ),
    Row(
        "J3 · carbon by the hour: grams for the same work, thinking that pays for them, over cleanest grid first",
        "{grams} at {eff} of R_eff; without the hydro grid {without}; traffic costs {traffic} % more",
        "cut, told annual means instead of hours: {annual} (of {hours} on the same 12 days without the hydro grid): "
        "**the hours themselves are worth nothing here**; {share} of what a plan with foresight saves",
        "results_carbon.md",
        (
            rf"1,000 USD/kg, w_cost 2 \| \*\*(?P<grams>{N} % \[[^]]*\])\*\* \| (?P<eff>{N} %)",
            rf"without BPAT:[^\n]*\n[^\n]*\*\*(?P<without>{N} % \[[^]]*\])",
            rf"with the hours \| (?P<hours>{N} % \[[^]]*\])",
            rf"^\| the same, told annual means \| (?P<annual>{N} % \[[^]]*\])",
            rf"costs is traffic: (?P<traffic>{N} to {N}) % more",
            rf"that pays, 12 days \|[^|]*\| \*\*(?P<share>{N} % \[[^]]*\])",
        ),
        "python benchmarks/carbon_days.py",
    ),
    Row(
        "J3 · what freedoms and senses are worth to who looks ahead (`rule+fork`): `cross-domain`, 20 days; `shared`, "
        "16 pairs of days",
        "cutting models {cut} % of work ({hours} h {interval}); sharing: tasks end {sooner} h sooner {by}; the EmSHAP "
        "vector beside the measured pace {vector} h of work {sure}",
        "cut: none of these allowed or known. Over any partner, tried and undone, {trial}; raw counters in its place "
        "are level ({raw}); over the models' names it is {name}: **missed**; what links carry at the moment is worth "
        "nothing",
        "results_senses.md",
        (
            rf"and (?P<cut>{N}) % \((?P<hours>{N}) h (?P<interval>\[[^]]*\])\) to who thinks",
            rf"tasks end (?P<sooner>{N}) h sooner (?P<by>\[[^]]*\])",
            rf"EmSHAP vector is worth (?P<vector>{N}) h of work (?P<sure>\[[^]]*\])",
            rf"over any partner, tried and undone, (?P<trial>{N} h \[[^]]*\])",
            rf"Raw counters in its place are level in work \((?P<raw>{N} h \[[^]]*\])",
            rf"Over the \*name\* it is (?P<name>{N} h \[[^]]*\])",
        ),
        "attribution-sched bench senses",
    ),
    Row(
        "One of Philly's tenants hands in ten times as much (`shared`, `sjf`, 5 draws): median hours to others' start",
        "{fair} with the share rule; bills by Shapley value add up to the meter by every rule",
        "before 0.00; without the rule {none}",
        "billing.md",
        (
            rf"^\| `sjf` \| none \|[^|]*\| \*\*(?P<none>{N} \[[^]]*\])",
            rf"^\| `sjf` \| fair-share \|[^|]*\| \*\*(?P<fair>{N} \[[^]]*\])",
        ),
        "python benchmarks/tenant_isolation.py",
    ),
    Row(
        "J5 · 100 placements explained: rank correlation of drivers, all weights shuffled; top driver put back",
        "{shuffled} (0.2 wanted; other days {first} and {other}; over all players {players}, at worst {worst}: **missed"
        " there**); flips {flips} of decisions (put back to *any* earlier value {any})",
        "another sampling seed {again}; a random input {random}",
        "results_explain.md",
        (
            rf"^\| all weights shuffled, ρ of the drivers \| (?P<first>{N}) [^|]*\| (?P<other>{N}) [^|]*"
            rf"\| (?P<shuffled>{N})",
            rf"^\| all weights shuffled, ρ of all players \|[^|]*\| (?P<worst>{N}) [^|]*\| (?P<players>{N})",
            rf"the deployed policy flips \|[^|]*\|[^|]*\| (?P<flips>{N})",
            rf"put back to any earlier value \|[^|]*\|[^|]*\| (?P<any>{N})",
            rf"^\| another sampling seed, ρ \|[^|]*\|[^|]*\| (?P<again>{N})",
            rf"^\| a random input put back to them \|[^|]*\|[^|]*\| (?P<random>{N})",
        ),
        "python benchmarks/explain_joint.py",
    ),
    Row(
        "When does it start: real starts inside the 80 % interval, {answers} waiting tasks of four fresh days (`rule`)",
        "{covered}; interval score {ratio} of that of history",
        "played in 59 futures of copies of the cluster; three held-out Philly weeks 0.745 of 196 (**0.76 wanted**); "
        "Hi-PPO with thinking {thinks}",
        "results_explain.md",
        (
            rf"^\| all \| (?P<answers>{N}) \| (?P<covered>{N} \[[^]]*\])",
            rf"ratio (?P<ratio>{N} \[[^]]*\])", rf"91 answers, \*\*(?P<thinks>{N} \[[^]]*\])\*\* covered",
        ),
        "python benchmarks/when_starts.py --runs 4",
    ),
    Row(
        "Why is it waiting: {answers} answers; those named removed, or the advice followed, the job starts",
        "**{percent} %** ({done} of {named}; advice {followed} of {advised})",
        "{wrong} contradictions on days of {decisions} decisions; on eight of these days two advices of 16 failed "
        "before a mend",
        "results_explain.md",
        (
            rf"of (?P<answers>{N}) answers, acting on them started the job in (?P<done>{N}) of (?P<named>{N}) cases "
            rf"\((?P<percent>{N}) %\)\*\*; advice (?P<followed>{N}) of (?P<advised>{N}); (?P<wrong>{N}) "
            rf"contradictions on days of (?P<decisions>{N}) decisions",
        ),
        "python benchmarks/why_waiting.py",
    ),
    Row(
        "J7 · killed at random: lost, doubled or half-released",
        "{none} with {kills} kills of local processes ({tasks} tasks and gangs), {zero} with {slurm} on Slurm, "
        "{nothing} with {ray} on Ray",
        "before: every job launched twice after a resume",
        "results_executors.md",
        (
            rf"within 0.9 s \| (?P<kills>{N}) \| {N}, (?P<tasks>{N}), {N} \| (?P<none>{N})",
            rf"within 3 s \| (?P<slurm>{N}) \|[^|]*\| (?P<zero>{N})",
            rf"within 6 s \| (?P<ray>{N}) \|[^|]*\| (?P<nothing>{N})",
        ),
        "python -m tests.campaigns.executor_kills",
    ),
    Row(
        "Step time and memory of 18 measured training runs",
        "time: mean error {mean} %, median {median} %, worst {worst} %; memory: median {memory} %, worst {most} %",
        "the run itself",
        "results_world.md",
        (
            rf"^time: mean error (?P<mean>{N})%, median (?P<median>{N})%, worst (?P<worst>{N})%",
            rf"^memory: mean error {N}%, median (?P<memory>{N})%, worst (?P<most>{N})%",
        ),
        "python benchmarks/measured_steps.py",
    ),
    Row(
        "Error of attributions on correlated counters (Gaussian, mixture, Burr)",
        "EmSHAP {ours_a}, {ours_b}, {ours_c}",
        "shapiq Gaussian {gauss_a}, {gauss_b}, {gauss_c}; copula {copula_a}, {copula_b}, {copula_c}; "
        "empirical kernel {kernel_a}, {kernel_b}, {kernel_c}",
        "results_attribution.md",
        tuple(
            rf"^\| {method} \| (?P<{key}_a>{N}) [^|]*\| (?P<{key}_b>{N}) [^|]*\| (?P<{key}_c>{N}) "
            for method, key in (
                (r"\*\*EmSHAP auto\*\*", "ours"), ("shapiq Gaussian", "gauss"), ("shapiq Gaussian copula", "copula"),
                (r"empirical kernel \(Aas\)", "kernel"),
            )
        ),
        "python benchmarks/conditional_shapley.py",
    ),
    Row(
        "J2 · the EmSHAP vector beside the measured pace, agents as shipped: return when it is cut",
        "thinking: `shared` {shared} in 36 hours (14 of them; another task's vector {another}), testbed {thinks} a "
        "day; no thinking: testbed {bed} (150 days), where three counters cannot be read {unread} with raw counters in "
        "EmSHAP's place; "
        "`cross-domain-easy` {cross} (200), **nothing**: true demands add {truth} there",
        "neither vector nor pace: {neither} on the testbed; raw counters in the vector's place {raw}: level. Of 200 "
        "decisions {zeroed} change when it is zeroed, {inverted} when inverted; truth in its place would change {most}",
        "results_hi_ppo.md",
        (
            rf"^\| zeroed at deployment \| {N} \| \*\*(?P<shared>{N} ± {N})\*\* \| {N} ± {N} % \|$",
            rf"^\| another task's \| {N} \| \*\*(?P<another>{N} ± {N})",
            rf"^\| zeroed at deployment \| {N} \| \**(?P<thinks>{N} ± {N})\** \| {N} ± {N} % \|[^|]+\|",
            rf"^\| `testbed` \| pace and vector [^\n]*\n\| \| pace, vector cut \|[^|]*\| \**(?P<bed>{N} ± {N})",
            rf"^\| `ou30` \| pace and vector [^\n]*\n\| \| pace, vector cut \|[^|]*\| \**(?P<cross>{N} ± {N})",
            rf"^\| raw counters, operators unread, means \|[^|]*\| \**(?P<unread>{N} ± {N})",
            rf"^\| `ou30` (?:[^\n]*\n){{5}}\| \| true demands \|[^|]*\| \**(?P<truth>{N} ± {N})",
            rf"^\| `testbed` (?:[^\n]*\n){{3}}\| \| neither \|[^|]*\| \**(?P<neither>{N} ± {N})",
            rf"^\| `testbed` (?:[^\n]*\n){{4}}\| \| pace and raw counters \|[^|]*\| \**(?P<raw>{N} ± {N})",
            rf"^\| `cross-domain-easy` \| (?P<inverted>{N} %) \| (?P<zeroed>{N} %)[^|]*\|[^|]*\| (?P<most>{N} %) \|",
        ),
        "python benchmarks/vector_worth.py",
    ),
    Row(
        "Time of Shapley values of a network's choice, 32 inputs",
        "{quick} ms quick, {standard} ms standard",
        "to the same error: shap Permutation {shap} as long, best of shapiq {shapiq}, captum {captum}",
        "results_explain.md",
        (
            rf"^\| quick, probability \| (?P<quick>{N}) ", rf"^\| standard, probability \| (?P<standard>{N}) ",
            rf"^\| shap\.Permutation,[^|]*probability \|(?:[^|]*\|){{3}} (?P<shap>{N}×)",
            rf"^\| best of shapiq: [^|]*probability \|(?:[^|]*\|){{3}} (?P<shapiq>{N}×)",
            rf"^\| captum\.[^|]*probability \|(?:[^|]*\|){{3}} (?P<captum>{N}×)",
        ),
        "python benchmarks/explain_speed.py",
    ),
    Row(
        "A decision of the whole system with thinking, journal on disk, and with its explanation (99th percentile)",
        "placing {place} ms, with explanation {explained} ms; first decision {first} s after import",
        "targets 1 s with thinking, 150 ms explained (**missed**), 3 s",
        "results_system.md",
        (
            rf"placing p99 (?P<place>{N}) ms",
            rf"^\| decision and explanation < 150 ms \| p50 {N} ms, p99 (?P<explained>{N}) ms",
            rf"^\| first decision < 3 s after import \| (?P<first>{N}) s .* met \|$",
        ),
        "python benchmarks/system_latency.py",
    ),
    Row(
        "J6 · feedback told by explanations how far decisions follow the weights: placements to a utilisation of 0.94",
        "{own}: {over} of those by fork values (0.8 wanted), {ratio} by outcomes",
        "cut, outcomes only {outcomes}; fork values {fork}; the answers shuffled {shuffled}. To a cost of 0.92 on "
        "`shared` {shared} of outcomes', level with fork values that may choose power caps (**0.8 missed there**)",
        "results_feedback.md",
        (
            rf"^\| outcomes \| (?P<outcomes>{N} \[[^]]*\])",
            rf"^\| fork values \| (?P<fork>{N} \[[^]]*\])",
            rf"^\| the policy's own answers \| (?P<own>{N} \[[^]]*\])",
            rf"^\| the same, shuffled \| (?P<shuffled>{N} \[[^]]*\])",
            rf"own answers over fork values \*\*(?P<over>{N} \[[^]]*\])\*\*, over outcomes (?P<ratio>{N} \[[^]]*\])",
            rf"own answers over outcomes \*\*(?P<shared>{N} \[[^]]*\])",
        ),
        "python benchmarks/feedback_arms.py --runs 12 --seed 92300",
    ),
)  # fmt: skip


def table() -> str:
    """The table, freshly read from the pages."""
    # The joints of the ring first, in their order.
    ordered = sorted(ROWS, key=lambda row: int(row.what[1]) if re.match(r"J\d ", row.what) else 9)
    lines = ["| measured | result | beside it | command, page |", "|---|---|---|---|"]
    return "\n".join([*lines, *(row.line((ROOT / "docs" / row.page).read_text("utf-8")) for row in ordered)])


def written(readme: str) -> str:
    """The README with the table between its markers.

    Raises:
        LookupError: If the markers are not there.
    """
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise LookupError(f"README.md: needs {BEGIN} and {END}, once each")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    README.write_text(written(README.read_text("utf-8")), encoding="utf-8")
