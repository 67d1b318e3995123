"""Who may ask what: Bearer tokens with one of three roles, and no door open by accident.

On loopback no token is needed, but a web page of somebody else's must not reach us through its visitor's browser: such
requests carry a foreign `Origin`, or, after a rebinding of names, a foreign `Host`. Beyond loopback every request
carries a token. Tokens are kept as digests and compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from tidelog.errors import ConfigError

READ, OPERATE, ADMIN = "read", "operate", "admin"
ROLES = (READ, OPERATE, ADMIN)
"""Each may do what those before it may."""
LOCAL = "local"
VARIABLE = "TIDELOG_TOKENS"
_LENGTH_MIN = 16
_SAFE = ("GET", "HEAD", "OPTIONS")
_FORM = "Write one token a line: ROLE TOKEN [NAME], where ROLE is read, operate or admin."


@dataclass(frozen=True)
class Token:
    role: str
    digest: bytes
    name: str

    def allows(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Denied(Exception):
    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


@dataclass(frozen=True)
class Access:
    tokens: tuple[Token, ...] = ()

    def __repr__(self) -> str:
        return f"Access({len(self.tokens)} tokens)"

    def holder(self, role: str, authorization: str) -> str:
        """The name of whoever asks, if that is allowed."""
        if not self.tokens:
            return LOCAL
        scheme, _, text = authorization.partition(" ")
        token = self._find(text.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            raise Denied(401, "A token is needed. Send the header Authorization: Bearer TOKEN.")
        if not token.allows(role):
            raise Denied(403, f"This needs the role {role}, and the token has {token.role}. Ask for another token.")
        return token.name

    def _find(self, text: str) -> Token | None:
        """Every token is compared, whichever fits: the time taken tells nothing."""
        digest = _digest(text)
        found = [token for token in self.tokens if hmac.compare_digest(token.digest, digest)]
        return found[0] if found else None

    def require_own(self, method: str, headers: Mapping[str, str]) -> None:
        """Whether a browser asks on behalf of our own page, or nobody else's. With tokens a foreign page has none."""
        if self.tokens:
            return
        host = headers.get("host", "")
        if not is_loopback(_hostname(host)):
            raise Denied(403, "The Host header names another machine. Ask for 127.0.0.1 or localhost.")
        origin = headers.get("origin")
        if origin is not None and method not in _SAFE and urlsplit(origin).netloc != host:
            raise Denied(403, "A page from elsewhere may not ask for this. Use the page that this service offers.")


def load(path: str | None, environment: Mapping[str, str] | None = None) -> Access:
    """The tokens of a file, or of the environment."""
    known = os.environ if environment is None else environment
    lines = (_text(path) if path else known.get(VARIABLE, "").replace(",", "\n")).splitlines()
    numbered = [(number, line.split()) for number, line in enumerate(lines, 1)]
    tokens = tuple(_token(number, parts) for number, parts in numbered if parts and not parts[0].startswith("#"))
    if path and not tokens:
        raise ConfigError(f"The file {path} holds no tokens.", hint=_FORM)
    return Access(tokens)


def require_closed(host: str, access: Access) -> None:
    """Nothing listens beyond this machine without tokens."""
    if not access.tokens and not is_loopback(host):
        raise ConfigError(
            f"Listening on {host} would let everybody in: there are no tokens.",
            hint=f"Give --tokens FILE or set {VARIABLE} (ROLE TOKEN [NAME]), or listen on 127.0.0.1.",
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _token(number: int, parts: list[str]) -> Token:
    if len(parts) not in (2, 3) or parts[0] not in ROLES:
        raise ConfigError(f"Line {number} of the tokens cannot be read.", hint=_FORM)
    if len(parts[1]) < _LENGTH_MIN:
        raise ConfigError(
            f"The token in line {number} is too short to be safe.",
            hint=f"Take {_LENGTH_MIN} characters or more, such as those of: openssl rand -hex 24",
        )
    return Token(parts[0], _digest(parts[1]), parts[2] if len(parts) == 3 else parts[0])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigError(f"The file {path} cannot be read ({reason}).", hint="Check path and rights.") from exc
