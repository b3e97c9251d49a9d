"""An explanation: every input's share of what a decision is worth, with error bars, and what goes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from math import inf, isinf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attribution_sched.errors import ExplanationError, nearest, problem
from attribution_sched.explain.findings import Change, Confidence, Counterfactual, Interaction, Player, Rule
from attribution_sched.shapley.estimate import Estimate
from attribution_sched.stats.interval import half_width
from attribution_sched.types import SIGNS as SIGNS
from attribution_sched.types import FloatArray
from attribution_sched.words.catalogue import texts
from attribution_sched.words.say import Phrase

if TYPE_CHECKING:
    import pandas as pd
    import shap

COMPONENTS: tuple[str, ...] = ("R_eff", "R_util", "R_cost")
TOTAL = "R"
TARGETS: tuple[str, ...] = ("decision", "terms", "simulator", "log_probability", "log_odds", "choice", "model")
"""What can be explained; in words: the variants of the message ``target.explained``."""


def whole_degrees(freedom: float) -> int:
    """Degrees of freedom as explanations keep them: 0 if nothing is random."""
    return 0 if isinf(freedom) else max(1, int(freedom))


def estimated(found: Estimate) -> dict[str, Any]:
    """Fields of an explanation that an estimate of Shapley values answers."""
    return {
        "outputs": found.outputs, "values": found.values, "standard_error": found.standard_error, "base": found.base,
        "value": found.full, "method": found.method, "degrees": whole_degrees(found.freedom),
        "rows": found.evaluations, "background": found.background, "seed": found.seed, "converged": found.converged,
    }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Explanation:
    """Shares of P players in C outputs of one decision.

    Σ over players of ``values`` is ``value − base``. Where the outputs are the reward components, a last output R is
    their sum with the frozen weights, and so are its shares.

    Attributes:
        decision: Identifier of the decision.
        policy: Name of the policy.
        subject: What was decided, in words.
        target: What is explained; a key of :data:`TARGETS`.
        players: Names and readings.
        outputs: Names of the outputs.
        values: Shares φ, shape ``(P, C)``.
        standard_error: Of the shares, the choice of background states included, shape ``(P, C)``.
        base: Mean output over the background, shape ``(C,)``.
        value: Output of the decision, shape ``(C,)``.
        weights: w_eff, w_util and w_cost at the decision; None where there are no components.
        against: The plan it is compared with, in words; empty if it stands alone.
        method: How the shares were found: exact, permutation or kernel.
        degrees: Independent estimates behind each standard error, for the interval's quantile; 0 if nothing is random.
        rows: Situations that were evaluated.
        background: Distinct background states among them.
        background_name: Where these come from.
        background_ids: Decisions they are from, all earlier than this one; empty if they are nobody's.
        seed: Of the sampling.
        converged: Whether the precision asked for was reached (True if none was).
        seconds: Time it took here; not part of the record, which is the same wherever it is made.
        confidence: How sure the policy was.
        rules: Thresholds found.
        counterfactual: The smallest flip found.
        interactions: Of the strongest players.
        notes: What a reader must know, in words.
        outcome: On a real cluster, the step that was predicted and what was measured of it since, in words.
    """

    decision: str
    policy: str
    subject: str
    target: str
    players: Sequence[Player]
    outputs: tuple[str, ...]
    values: FloatArray
    standard_error: FloatArray
    base: FloatArray
    value: FloatArray
    weights: tuple[float, float, float] | None = None
    against: str = ""
    method: str = "exact"
    degrees: int = 0
    rows: int = 0
    background: int = 0
    background_name: str = ""
    background_ids: tuple[str, ...] = ()
    seed: int = 0
    converged: bool = True
    seconds: float = field(default=0.0, compare=False)
    confidence: Confidence | None = None
    rules: tuple[Rule, ...] = ()
    counterfactual: Counterfactual | None = None
    interactions: tuple[Interaction, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    outcome: str = ""

    def __post_init__(self) -> None:
        p, c = len(self.players), len(self.outputs)
        shapes = {"values": (p, c), "standard_error": (p, c), "base": (c,), "value": (c,)}
        for name, shape in shapes.items():
            # A copy: it is frozen below, and the caller's own must stay writable.
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != shape:
                fix = "Give one row per player and one column per output"
                raise ExplanationError(problem(f"{name}.shape", array.shape, f"must be {shape}", fix))
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.target not in TARGETS:
            raise ExplanationError(problem("target", self.target, "is not known", nearest(self.target, TARGETS)))
        names = self.names
        if len(set(names)) != p:
            twice = next(name for name in names if names.count(name) > 1)
            raise ExplanationError(problem("player", twice, "is there twice", "Give every player its own name"))

    @property
    def names(self) -> list[str]:
        """Names of the players."""
        names: Sequence[str] | None = getattr(self.players, "names", None)
        return [player.name for player in self.players] if names is None else list(names)

    def column(self, output: str) -> int:
        """Where an output stands."""
        if output not in self.outputs:
            raise ExplanationError(problem("output", output, "is not explained here", nearest(output, self.outputs)))
        return self.outputs.index(output)

    @property
    def main(self) -> str:
        """The output to show if only one is: the total where there is one, else the first."""
        return TOTAL if TOTAL in self.outputs else self.outputs[0]

    def share(self, player: str, output: str | None = None) -> float:
        """Share of one player."""
        if player not in self.names:
            raise ExplanationError(problem("player", player, "does not exist", nearest(player, self.names)))
        return float(self.values[self.names.index(player), self.column(output or self.main)])

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Confidence limits of all shares, each of shape ``(P, C)``."""
        width = half_width(self.standard_error, self.degrees or inf, level)
        return self.values - width, self.values + width

    def significant(self, output: str | None = None, level: float = 0.95) -> NDArray[np.bool_]:
        """Players whose interval does not include 0, shape ``(P,)``."""
        low, high = (limit[:, self.column(output or self.main)] for limit in self.interval(level))
        found: NDArray[np.bool_] = (low > 0) | (high < 0)
        return found

    def drivers(self, output: str | None = None, most: int | None = None, *, sure: bool = False) -> list[int]:
        """Players by the size of their share, the largest first.

        Args:
            output: Which output; the main one by default.
            most: How many at most.
            sure: Leave out those whose interval includes 0.
        """
        shares = self.values[:, self.column(output or self.main)]
        order = [int(i) for i in np.argsort(-np.abs(shares), kind="stable")]
        if sure:
            kept = self.significant(output)
            order = [i for i in order if kept[i]]
        return order[:most]

    def efficiency_gap(self) -> FloatArray:
        """What shares fail to add up to, relative to the largest output difference, shape ``(C,)``."""
        missing = np.abs(self.values.sum(axis=0) - (self.value - self.base))
        scale = np.maximum(np.abs(self.value - self.base), np.abs(self.values).max(axis=0, initial=0.0))
        found: FloatArray = missing / np.maximum(scale, 1e-12)
        return found

    def to_frame(self) -> pd.DataFrame:
        """One row per player: its readings, and per output share and limits."""
        import pandas as pd

        low, high = self.interval()
        table: dict[str, Any] = {
            "player": self.names,
            "group": [player.group for player in self.players],
            "value": [player.value for player in self.players],
            "usual": [player.usual for player in self.players],
        }
        for c, output in enumerate(self.outputs):
            table |= {output: self.values[:, c], f"{output} low": low[:, c], f"{output} high": high[:, c]}
        return pd.DataFrame(table).set_index("player")

    def to_shap(self, output: str | None = None) -> shap.Explanation:
        """The same as a ``shap.Explanation``, for shap's own plots.

        Args:
            output: One output, as most of those plots want; all of them by default.
        """
        import shap

        at: Any = slice(None) if output is None else self.column(output)
        base = self.base[at]
        return shap.Explanation(
            values=np.array(self.values[:, at]),
            base_values=np.array(base) if output is None else float(base),
            data=np.array([player.value or player.number for player in self.players], dtype=object),
            feature_names=self.names,
            output_names=list(self.outputs) if output is None else None,
            compute_time=self.seconds,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, words and lists, ready for JSON."""
        return to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Explanation:
        """The inverse of :meth:`to_dict`."""
        return from_dict(given)

    def _repr_html_(self) -> str:
        from attribution_sched.explain.notebook import to_html

        return to_html(self)


# ------ Explanations as plain numbers and words, and back

ARRAYS: tuple[str, ...] = ("values", "standard_error", "base", "value")


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """Everything as plain numbers, words and lists, ready for JSON; NaN becomes null.

    Words are English; ``phrases`` tells of each text that is a message of the catalogue which one, and with what
    values, so that it can be said in every language.
    """
    told = {item.name: getattr(explanation, item.name) for item in fields(explanation) if item.compare}
    phrases: dict[str, Any] = {}
    plain = {name: _plain(value, phrases) for name, value in told.items()}
    return {**plain, "phrases": phrases}


def from_dict(given: Mapping[str, Any]) -> Explanation:
    """The inverse of :func:`to_dict`.

    Raises:
        ExplanationError: If a field is missing, unknown or malformed.
    """
    names = {item.name for item in fields(Explanation)}
    unknown = sorted(set(given) - names - {"phrases"})
    if unknown:
        raise ExplanationError(problem("field", unknown[0], "is not known", nearest(unknown[0], names)))
    try:
        # Explanations of older versions have none, those of newer ones may have others: their words stay as they are.
        told = given.get("phrases", {})
        phrases = {text: Phrase.from_dict(how) for text, how in told.items() if how["message"] in texts("en")}
        made = {name: _said(value, phrases) for name, value in given.items() if name != "phrases"}
        for name in ARRAYS:
            made[name] = np.array(_numbers(made[name]), dtype=np.float64)
        shape = (len(made["players"]), len(made["outputs"]))
        made["values"], made["standard_error"] = (made[name].reshape(shape) for name in ("values", "standard_error"))
        made["players"] = tuple(Player(**_read(player)) for player in made["players"])
        made["outputs"] = tuple(made["outputs"])
        made["weights"] = None if made.get("weights") is None else tuple(made["weights"])
        made["rules"] = tuple(Rule(**_read(rule)) for rule in made.get("rules", ()))
        made["interactions"] = tuple(Interaction(**_read(pair)) for pair in made.get("interactions", ()))
        made["background_ids"] = tuple(made.get("background_ids", ()))
        made["notes"] = tuple(made.get("notes", ()))
        if made.get("confidence") is not None:
            made["confidence"] = Confidence(**_read(made["confidence"]))
        if made.get("counterfactual") is not None:
            flip = _read(made["counterfactual"])
            flip["changes"] = tuple(Change(**_read(change)) for change in flip["changes"])
            made["counterfactual"] = Counterfactual(**flip)
        return Explanation(**made)
    except (KeyError, TypeError, ValueError) as error:
        raise ExplanationError(
            problem("explanation", str(error), "cannot be read", "Use what to_dict() gave")
        ) from error


def _plain(value: Any, phrases: dict[str, Any]) -> Any:
    """The value as JSON has it; phrases met on the way are added to those."""
    if isinstance(value, Phrase):
        phrases[str(value)] = value.to_dict()
        return str(value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), phrases)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value), phrases)
    if isinstance(value, dict):
        return {name: _plain(part, phrases) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(part, phrases) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        # JSON has no NaN.
        return None
    return value


def _said(value: Any, phrases: Mapping[str, Phrase]) -> Any:
    """The inverse: texts that are phrases become them again."""
    if isinstance(value, str):
        return phrases.get(value, value)
    if isinstance(value, Mapping):
        return {name: _said(part, phrases) for name, part in value.items()}
    return [_said(part, phrases) for part in value] if isinstance(value, (list, tuple)) else value


def _read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that were written as null are NaN again."""
    return {name: float("nan") if value is None else value for name, value in given.items()}


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return float("nan") if value is None else value
