"""DECFLOAT: decimal floating point of IEEE 754, 8 or 16 bytes, its digits densely packed by threes.

There is no column type that holds what it can hold, so it is delivered as text: one text for each value, however many
zeros it was written with. Such columns are rare; they go value by value.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

_EXPONENT = {8: (8, 398), 16: (12, 6176)}
"""By size: the bits that continue the exponent, and what it is too large by."""
_EXACT = Context(prec=34, Emax=6144, Emin=-6143)
_PLAIN_MAX = 34
"""Numbers with more places than that are written with an exponent."""


def text(raw: bytes) -> str:
    bits, size = int.from_bytes(raw, "big"), len(raw) * 8
    continued, bias = _EXPONENT[len(raw)]
    sign, lead = bits >> (size - 1), bits >> (size - 6) & 31
    if lead >= 30:
        return _special(sign, lead, bits >> (size - 7) & 1)
    high, first = (lead >> 1 & 3, 8 | lead & 1) if lead >= 24 else (lead >> 3, lead & 7)
    rest = size - 6 - continued
    exponent = (high << continued | bits >> rest & (1 << continued) - 1) - bias
    digits = str(first) + "".join(_three(bits >> at & 1023) for at in range(rest - 10, -1, -10))
    return canonical(Decimal((sign, tuple(map(int, digits)), exponent)))


def canonical(value: Decimal) -> str:
    """`value` as it came, from a record or from what Db2 writes."""
    if not value.is_finite() or not value:
        return str(value) if value else "0"
    short = value.normalize(_EXACT)
    return f"{short:f}" if -_PLAIN_MAX <= short.adjusted() < _PLAIN_MAX else str(short)


def _special(sign: int, lead: int, signals: int) -> str:
    kind = "Infinity" if lead == 30 else "sNaN" if signals else "NaN"
    return "-" + kind if sign else kind


@lru_cache(maxsize=1024)
def _three(ten: int) -> str:
    """Ten bits, p q r s t u v w x y, as three digits: v says whether one of them is 8 or 9, those behind it which."""
    high, middle, low = ten >> 7, ten >> 4 & 7, ten & 7
    p_q, r, s_t, u, y = high >> 1, high & 1, middle >> 1, middle & 1, ten & 1
    if not ten & 8:
        return f"{high}{middle}{low}"
    match ten >> 1 & 3, s_t:
        case 0, _:
            return f"{high}{middle}{8 + y}"
        case 1, _:
            return f"{high}{8 + u}{s_t << 1 | y}"
        case 2, _:
            return f"{8 + r}{middle}{p_q << 1 | y}"
        case _, 0:
            return f"{8 + r}{8 + u}{p_q << 1 | y}"
        case _, 1:
            return f"{8 + r}{p_q << 1 | u}{8 + y}"
        case _, 2:
            return f"{high}{8 + u}{8 + y}"
    return f"{8 + r}{8 + u}{8 + y}"
