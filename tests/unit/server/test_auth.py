"""Tokens: who is let in, and that nothing listens openly by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import ConfigError
from tidelog.server import auth
from tidelog.server.auth import Access, Denied

LONG = "0123456789abcdef"


def access(text: str) -> Access:
    return auth.load(None, {auth.VARIABLE: text})


def test_each_role_may_what_those_below_it_may() -> None:
    tokens = access(f"read r-{LONG}, operate o-{LONG} olga, admin a-{LONG}")
    allowed = {
        (token, role) for token in "roa" for role in auth.ROLES if not _denied(tokens, role, f"Bearer {token}-{LONG}")
    }
    assert allowed == {("r", "read"), ("o", "read"), ("o", "operate"), *(("a", role) for role in auth.ROLES)}
    assert tokens.holder("read", f"Bearer o-{LONG}") == "olga"
    assert tokens.holder("read", f"bearer a-{LONG}") == "admin"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic r-{LONG}", f"r-{LONG}", "Bearer \udcff"])
def test_without_a_token_nobody_is_let_in(header: str) -> None:
    assert _denied(access(f"read r-{LONG}"), "read", header) == 401


def test_tokens_are_not_kept_nor_shown() -> None:
    assert LONG not in repr(access(f"read r-{LONG}")) + str(vars(access(f"read r-{LONG}").tokens[0]))


@pytest.mark.parametrize("text", ["root x", "read", f"reader r-{LONG}", "read short", f"read r-{LONG} a b"])
def test_tokens_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        access(text)
    assert LONG not in str(caught.value)
    assert caught.value.hint


def test_a_file_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\nadmin a-{LONG} root\n\n")
    assert auth.load(str(file)).holder("admin", f"Bearer a-{LONG}") == "root"
    file.write_text("# none\n")
    with pytest.raises(ConfigError, match="no tokens"):
        auth.load(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        auth.load(str(tmp_path / "none"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "db.example", ""])
def test_nothing_listens_openly(host: str) -> None:
    with pytest.raises(ConfigError, match="tokens"):
        auth.require_closed(host, Access())
    auth.require_closed(host, access(f"read r-{LONG}"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_loopback_needs_no_token(host: str) -> None:
    auth.require_closed(host, Access())


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost.evil.example:8083"])
def test_a_foreign_host_is_refused(host: str) -> None:
    with pytest.raises(Denied):
        Access().require_own("GET", {"host": host})


@pytest.mark.parametrize("host", ["127.0.0.1:8083", "localhost", "[::1]:8083"])
def test_our_own_page_may_ask(host: str) -> None:
    Access().require_own("POST", {"host": host, "origin": f"http://{host}"})
    with pytest.raises(Denied):
        Access().require_own("POST", {"host": host, "origin": "http://localhost:9999"})


def _denied(tokens: Access, role: str, header: str) -> int:
    try:
        tokens.holder(role, header)
    except Denied as denied:
        return denied.code
    return 0
