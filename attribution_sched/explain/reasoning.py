"""One paragraph of reasoning for a decision, generated from its numbers.

A driver is named only if the interval of its share excludes 0. Thresholds and flips were found by running the policy
and stand on their own.
"""

from __future__ import annotations

from types import ModuleType

from attribution_sched.errors import ExplanationError, problem
from attribution_sched.explain.explanation import Explanation
from attribution_sched.explain.wording import check_language

SECTIONS: tuple[str, ...] = (
    "decision", "worth", "drivers", "interaction", "rule", "counterfactual", "method",
)  # fmt: skip
"""Parts of the paragraph, in order; a part without anything to tell is left out."""


def reasoning(explanation: Explanation, lang: str = "en", most: int = 3) -> str:
    """Tell a decision: what was chosen, how surely, what it is worth, what drove that, and how it was found.

    Args:
        explanation: The explanation.
        lang: ``en`` or ``zh``.
        most: Drivers per output at most.

    Raises:
        ExplanationError: If the language is not known or ``most`` is less than 1.
    """
    told = sections(explanation, lang, most)
    return (" " if lang == "en" else "").join(told.values())


def sections(explanation: Explanation, lang: str = "en", most: int = 3) -> dict[str, str]:
    """The parts of :func:`reasoning` by name; see :data:`SECTIONS`."""
    if most < 1:
        raise ExplanationError(problem("most", most, "must be >= 1", "Use 3"))
    words = _language(lang)
    told = {
        "decision": words.decision(explanation),
        "worth": words.worth(explanation),
        "drivers": words.drivers(explanation, most),
        "interaction": words.interaction(explanation),
        "rule": words.rule(explanation),
        "counterfactual": words.counterfactual(explanation),
        "method": words.method(explanation),
    }
    return {name: text for name, text in told.items() if text}


def headline(explanation: Explanation, lang: str = "en") -> str:
    """What was decided and how surely: the first sentence of :func:`reasoning`."""
    text: str = _language(lang).decision(explanation)
    return text


def _language(lang: str) -> ModuleType:
    check_language(lang)
    if lang == "zh":
        from attribution_sched.explain import reasoning_zh

        return reasoning_zh
    from attribution_sched.explain import reasoning_en

    return reasoning_en
