"""Numbers for people: as many digits as they are good for, real minus signs, units."""

from __future__ import annotations

import math

MINUS = "−"

ROUNDING = 1e-12
"""Half-widths below this share of their value are the rounding of sums, not chance."""

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """A number with so many significant digits, trailing zeros left out.

    Args:
        value: It; what is not finite is written as a dash.
        digits: Significant digits.
        signed: Write a plus sign too.
    """
    if not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent < -4 or exponent >= 7:
        mantissa, power = f"{abs(value):.{digits - 1}e}".split("e")
        body = f"{_trimmed(mantissa)}×10{str(int(power)).translate(_RAISED)}"
    else:
        body = _trimmed(f"{abs(value):,.{max(0, digits - 1 - exponent)}f}")
    return _sign(value, signed) + body


def share(value: float, half: float = 0.0, *, signed: bool = True) -> str:
    """A share with the half-width of its interval, rounded alike: ``+0.183 ± 0.021``.

    Args:
        value: The share.
        half: Half-width; 0 if nothing is random, and then it is not written, nor is what is only rounding.
        signed: Write a plus sign too.
    """
    if not (math.isfinite(value) and math.isfinite(half)) or half <= ROUNDING * abs(value):
        return number(value, signed=signed)
    size = max(abs(value), half)
    if size < 1e-4 or size >= 1e7:
        return f"{number(value, 2, signed=signed)} ± {number(half, 2)}"
    leading, exponent = f"{half:.2e}".split("e")
    # One digit of the error is enough, two if it begins low. Past four digits of the value no more are read.
    decimals = -int(exponent) + (1 if float(leading) < 3.55 else 0)
    decimals = max(0, min(decimals, 3 - math.floor(math.log10(size))))
    shown = f"{abs(value):,.{decimals}f}"
    beside = f"{half:,.{decimals}f}"
    if abs(float(beside.replace(",", "")) - half) > 0.3 * half:
        # So few digits do not say how large the error is.
        beside = number(half, 1)
    return f"{_sign(value, signed)}{shown} ± {beside}"


def percent(value: float) -> str:
    """A probability or share in percent; never 0 or 100 unless it is."""
    if not math.isfinite(value):
        return "–"
    if 0.0 < value < 0.001:
        return "< 0.1 %"
    if 0.999 < value < 1.0:
        return "> 99.9 %"
    plain = f"{100 * value:.0f}" if 0.1 <= value <= 0.9 else f"{100 * value:.1f}".removesuffix(".0")
    return f"{plain} %"


def amount(value: float, unit: str, digits: int = 3) -> str:
    """A number with its unit."""
    return f"{number(value, digits)} {unit}".strip()


def alike(one: float, other: float) -> tuple[str, str]:
    """Two numbers to as many decimals each: three digits of the larger, and more if they lie close."""
    size, gap = max(abs(one), abs(other)), abs(one - other)
    if not (math.isfinite(size) and 1e-4 <= size < 1e7):
        return number(one), number(other)
    decimals = 2 - math.floor(math.log10(size))
    if gap > 0.0:
        decimals = max(decimals, min(-math.floor(math.log10(gap)), decimals + 2))
    decimals = max(0, decimals)
    first, second = (f"{_sign(round(value, decimals), False)}{abs(value):,.{decimals}f}" for value in (one, other))
    return first, second


def apart(one: float, other: float, unit: str) -> tuple[str, str]:
    """Two amounts with enough digits to tell them apart, if they differ at all."""
    for digits in range(3, 9):
        pair = amount(one, unit, digits), amount(other, unit, digits)
        if pair[0] != pair[1] or one == other:
            return pair
    return pair


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _sign(value: float, signed: bool) -> str:
    return MINUS if value < 0 else "+" if signed and value > 0 else ""
