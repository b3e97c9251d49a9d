"""Numbers for people."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attribution_sched.explain.digits import alike, amount, apart, number, percent, share

RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def read(text: str) -> float:
    """The number a text says."""
    plain = text.replace("−", "-").replace(",", "")
    match = re.fullmatch(r"([+-]?[\d.]+)(?:×10([⁻⁰-⁹¹²³]+))?", plain)
    assert match, text
    return float(match[1]) * 10.0 ** int((match[2] or "0").translate(RAISED))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (3.0, "3"), (0.12345, "0.123"), (-0.5, "−0.5"), (12345.6, "12,346"), (3.2e-7, "3.2×10⁻⁷"),
     (4.56e9, "4.56×10⁹"), (float("nan"), "–"), (float("inf"), "–"), (999.6, "1,000"), (0.0001, "0.0001")],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


@given(st.floats(-1e12, 1e12).filter(lambda x: abs(x) > 1e-12))
def test_a_number_says_what_it_is_to_three_digits(value):
    assert read(number(value)) == pytest.approx(value, rel=6e-3)
    assert number(value, signed=True)[0] == ("+" if value > 0 else "−")


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [(0.1834, 0.0212, "+0.183 ± 0.021"), (0.1834, 0.0612, "+0.18 ± 0.06"), (-0.05, 0.0, "−0.05"),
     (12.0, 3.0, "+12.0 ± 3.0"), (2e-7, 1e-8, "+2×10⁻⁷ ± 1×10⁻⁸"), (1234.5, 40.0, "+1,234 ± 40"),
     (5.0, 1e-9, "+5.000 ± 1×10⁻⁹"), (-0.026, 2e-15, "−0.026")],
)  # fmt: skip
def test_shares_have_the_digits_their_error_allows(value, half, text):
    assert share(value, half) == text


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e5))
def test_a_share_is_within_its_error_of_what_is_written(value, half):
    assume(half > 1e-12 * abs(value))
    written, beside = share(value, half).split(" ± ")
    assert abs(read(written) - value) <= half or read(written) == pytest.approx(value, rel=6e-2)
    assert read(beside) == pytest.approx(half, rel=0.5)


def test_percent_never_claims_certainty():
    assert [percent(p) for p in (0.0, 1.0, 0.0004, 0.9996, 0.81, 0.92, 0.995, 0.047)] == [
        "0 %", "100 %", "< 0.1 %", "> 99.9 %", "81 %", "92 %", "99.5 %", "4.7 %",
    ]  # fmt: skip


def test_two_numbers_can_be_told_apart():
    assert apart(3.2001, 3.2002, "Gb/s") == ("3.2001 Gb/s", "3.2002 Gb/s")
    assert apart(2.0, 2.0, "") == ("2", "2")
    assert alike(0.353, 0.12) == ("0.353", "0.120")
    assert alike(0.345, 0.35) == ("0.345", "0.350")
    assert alike(1e-9, 2.0) == ("0.00", "2.00")
    assert amount(9.13, "Gb/s") == "9.13 Gb/s"
