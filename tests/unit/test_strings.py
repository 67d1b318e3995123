from __future__ import annotations

from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from tidelog.core import strings

NINES = "9" * 38


def cast(*texts: str | None, scale: int = 0) -> list[Decimal | str | None]:
    """The numbers, and "failed" for those that are none of the type."""
    found, failed = strings.cast(pa.array(texts, pa.string()), pa.decimal128(38, scale))
    assert found.type == pa.decimal128(38, scale)
    return ["failed" if bad else value for value, bad in zip(found.to_pylist(), failed.tolist(), strict=True)]


@pytest.mark.parametrize("digits", range(39, 60))
def test_too_many_digits_are_no_number(digits: int) -> None:
    assert cast("1" * digits, "9" * digits, f"-{'9' * digits}", "7") == ["failed"] * 3 + [Decimal(7)]


def test_zeros_do_not_count() -> None:
    nines = Decimal(NINES)
    assert cast(f"000000{NINES}", f"-{NINES}", f"{NINES}.000", None) == [nines, Decimal(f"-{NINES}"), nines, None]
    assert cast("0" * 50, f"0.{'0' * 50}") == [Decimal(0)] * 2
    assert cast(f"{'9' * 36}.5000", scale=2) == [Decimal(f"{'9' * 36}.5")]
    assert cast(f"{'9' * 37}.5000", f"0.{'0' * 40}1", scale=2) == ["failed"] * 2


def test_what_is_no_number_stays_none() -> None:
    assert cast("x" * 40, "1_0" * 20, "1e40", f"{NINES}e0", f"{'0' * 50}e5", "1") == [
        *["failed"] * 3,
        Decimal(NINES),
        Decimal(0),
        Decimal(1),
    ]


@pytest.mark.parametrize("scale", [0, 5])
def test_numbers_are_exact_or_refused(scale: int) -> None:
    rng = Random(scale)
    for power in range(20, 50):
        assert cast(f"7e{power}", scale=scale) == [Decimal(f"7e{power}") if power + scale < 38 else "failed"]
    for _ in range(500):
        whole = "".join(rng.choices("0123456789", k=rng.randint(1, 45)))
        text = whole + ("." + "".join(rng.choices("012", k=rng.randint(0, 6))) if rng.random() < 0.5 else "")
        (found,) = cast(text, scale=scale)
        exact = Decimal(text)
        assert found == exact or (found == "failed" and _unfit(exact, scale)), text


def _unfit(number: Decimal, scale: int) -> bool:
    tuple_ = number.as_tuple()
    digits = "".join(map(str, tuple_.digits))
    fraction = -int(tuple_.exponent)
    trimmed = len(digits.rstrip("0")) - len(digits)
    return number.adjusted() + 1 + scale > 38 or fraction + trimmed > scale
