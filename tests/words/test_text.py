"""Words that others wrote, made safe to show."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attribution_sched.errors import nearest, problem
from attribution_sched.words.text import MOST_SHOWN, clean_text, csv_text, shown

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"


@given(st.text(alphabet=st.characters() | st.sampled_from("\x00\x1b\x7f\x9b\n\r\t\u2028\ufeff\ud800" + BIDI)))
def test_nothing_unseen_is_left_and_cleaning_twice_changes_nothing(text):
    clean = clean_text(text)
    assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 or each in BIDI for each in clean)
    assert not any(0xD800 <= ord(each) < 0xE000 or each in "\u2028\u2029\ufeff" for each in clean)
    assert clean_text(clean) == clean
    clean.encode()


@pytest.mark.parametrize("text", ["ResNet50", "任务 7", "naïve (β = 0.5)", "می\u200cخواهم", "a-b_c:d/e"])
def test_words_of_any_language_stay_as_they_are(text):
    assert clean_text(text) == text


def test_ends_of_lines_become_a_space_and_escapes_go():
    assert clean_text("a\r\nb\tc\u2028d") == "a b c d"
    assert clean_text("\x1b[31mred\x1b[0m") == "[31mred[0m"


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@sum", " =1", "\t=1", "\x00=1"])
def test_no_cell_is_a_formula(text):
    assert csv_text(text).startswith("'")
    assert csv_text("a=b") == "a=b"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    | st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(st.integers(0, 9), max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(PLAIN)
def test_a_short_value_is_shown_as_python_writes_it(value):
    if len(repr(value)) <= MOST_SHOWN and _depth(value) < 6:
        assert shown(value) == repr(value)
    else:
        assert len(shown(value)) <= MOST_SHOWN + 1


def _depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | frozenset) else ()
    return 1 + max(map(_depth, inner), default=0)


def test_a_value_that_would_fill_the_memory_is_cut_at_once():
    bomb = ["x"]
    for _ in range(60):
        bomb = [bomb] * 9
    circle = {}
    circle["me"] = circle
    began = time.process_time()
    for value in (bomb, circle, "a" * 10**7, 10**5000, {"a": bomb}, (bomb,)):
        assert len(problem("field", value, "rule", "fix")) < 260
    assert time.process_time() - began < 0.5


def test_a_value_whose_repr_raises_does_not_hide_the_error():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    assert problem("field", Odd(), "rule", "fix") == "field = <Odd that cannot be written>: rule. fix"


def test_a_message_is_one_line_without_escapes():
    told = problem("a\nb", "\x1b[2J\u202e", "r\x07", "f\u2028x")
    assert told == "a b = '\\x1b[2J\\u202e': r. f x"


def test_a_hint_is_bounded_for_any_name():
    valid = [f"name-{n:03d}" for n in range(250)]
    began = time.process_time()
    assert nearest("z" * 10**6, valid).endswith(", … (150 more)")
    assert nearest(["x"] * 10**6, valid).startswith("Valid: ")
    assert nearest("name-7", ["name-77"]) == "Did you mean 'name-77'?"
    assert time.process_time() - began < 1.0
