"""Log sequence numbers in groups of hexadecimal digits, as SQL Server (8:8:4) and Db2 (8:8:16) print them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelog.core.offsets.fields import Kind, expected
from tidelog.errors import ConfigError

UNKNOWN = "NULL"
"""What other connectors write for an LSN that they do not know."""


@dataclass(frozen=True)
class Form:
    groups: tuple[int, ...]

    @property
    def example(self) -> str:
        return ":".join("0" * width for width in self.groups)

    def parse(self, text: str) -> str | None:
        """As we write it: lower case, in groups. Without its colons it is read too."""
        if text == UNKNOWN:
            return None
        parts = text.split(":") if ":" in text else self._cut(text)
        right = len(parts) == len(self.groups) and all(
            re.fullmatch(rf"[0-9a-fA-F]{{{width}}}", part) for part, width in zip(parts, self.groups, strict=True)
        )
        if not right:
            raise expected(f"an LSN in the form {self.example}", text, hint=self._hint(text))
        return ":".join(parts).lower()

    def number(self, text: str | None) -> int:
        """For comparing; an unknown one is before all others."""
        written = self.parse(text) if text is not None else None
        return -1 if written is None else int(written.replace(":", ""), 16)

    def kind(self) -> Kind:
        def read(value: object) -> str | None:
            if not isinstance(value, str):
                raise expected(f"an LSN in the form {self.example}", value, hint="Write it in quotes, in groups.")
            return self.parse(value)

        groups = ":?".join(f"[0-9a-fA-F]{{{width}}}" for width in self.groups)
        return Kind("an LSN", read, {"type": "string", "pattern": f"^(?:{groups}|{UNKNOWN})$"})

    def _cut(self, text: str) -> list[str]:
        if len(text) != sum(self.groups):
            return []
        ends = [sum(self.groups[: n + 1]) for n in range(len(self.groups))]
        return [text[end - width : end] for end, width in zip(ends, self.groups, strict=True)]

    def _hint(self, text: str) -> str:
        if not text.lower().startswith("0x"):
            return "Write hexadecimal digits in these groups."
        try:
            return f"Write it as {self.parse(text[2:])}."
        except ConfigError:
            return f"Leave out the 0x, and write {sum(self.groups)} hexadecimal digits in these groups."
