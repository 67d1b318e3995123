"""A connector's config as Kafka Connect's users write it: one flat map of texts, and the definition that it means.

The source's settings stand under their own names; those of the other sections carry the section's name as a prefix
(`sink.type`, `stream.trigger`, `journal.path`). References such as `${PGPASSWORD}` stay as they were written and are
resolved only when a connector starts. Secrets are hidden on the way out; on the way in, that means: as before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from itertools import count
from typing import Any

from tidelog.connectors import Plugin, plugin
from tidelog.core.settings import REFERENCE, Setting, resolve
from tidelog.engine import definition as definitions
from tidelog.engine.definition import HIDDEN, Definition, redact
from tidelog.errors import ConfigError

CLASS, NAME, TASKS = "connector.class", "name", "tasks.max"
PREFIXED = ("sink", "stream", "journal")
_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET_NAME = re.compile(r"pass|pwd|(^|[^a-z])pw([^a-z]|$)|secret|token|credential|key|auth|salt|dsn", re.I)
"""In the name of a setting or of a variable. Wider than what hides a setting's own value: that one is read by its
author, while a reference tells what somebody else keeps on this machine."""
_SHORT = 4
"""A text shorter than this says nothing by itself, and is everywhere."""


def settings(plugin: Plugin) -> tuple[Setting, ...] | None:
    """The settings of its source; None where they are not declared yet, and any name is taken as it is."""
    if not plugin.captures:
        return None
    found: tuple[Setting, ...] = import_module(f"tidelog.connectors.{plugin.name}.config").SETTINGS
    return found


def own_names(plugin: Plugin) -> frozenset[str]:
    """What a source calls its settings: `journal.name` may be IBM i's journal, and not a part of ours."""
    return frozenset(setting.name for setting in settings(plugin) or ())


def plugin_of(config: Mapping[str, str]) -> Plugin:
    """The plugin that a config names."""
    text = config.get(CLASS, "")
    if not text:
        raise ConfigError(f"The config has no {CLASS}.", hint=f'Add "{CLASS}": "postgres".')
    return plugin(text)


def named(name: str) -> bool:
    """Whether this can be the name of a connector, and so of a folder."""
    return bool(_NAMED.fullmatch(name))


def definition(name: str, config: Mapping[str, str]) -> Definition:
    """What the config means now: references are resolved here."""
    return definitions.from_mapping({"name": name, **sections(config)}, where="The config")


def sections(config: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The parts of a definition, as they are written."""
    plugin = plugin_of(config)
    own = own_names(plugin)
    found: dict[str, dict[str, str]] = {"source": {"connector": plugin.name}}
    found |= {title: {} for title in PREFIXED}
    for key, text in config.items():
        title, _, rest = key.partition(".")
        if title in PREFIXED and key not in own:
            found[title][rest] = text
        elif key not in (CLASS, NAME, TASKS):
            found["source"][key] = text
    return found


def written(raw: Mapping[str, Any]) -> dict[str, str]:
    """The other way round: the config that means the same as a definition that was written as YAML."""
    if raw.get("offset.storage"):
        raise ConfigError(
            "offset.storage says where `tidelog run` keeps offsets; a server keeps those of all its "
            "connectors in one place.",
            hint="Leave it out here, and start the server with `tidelog server --offset-storage URL`.",
        )
    if raw.get("spark"):
        raise no_spark()
    flat: dict[str, str] = {}
    for title in ("source", *PREFIXED):
        prefix = "" if title == "source" else f"{title}."
        flat |= {f"{prefix}{key}": text for key, text in _texts(raw.get(title) or {})}
    connector = flat.pop("connector", "")
    return {NAME: str(raw.get("name", "")), CLASS: connector, **flat}


def no_spark() -> ConfigError:
    return ConfigError(
        "A connector has no settings of Spark: all connectors of a server share one Spark session.",
        hint="Leave out the section spark, and start the server with `tidelog server --master URL --conf NAME=VALUE`.",
    )


def _texts(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in section.items():
        if isinstance(value, Mapping):
            found += _texts(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value)))
    return found


# -- secrets ---------------------------------------------------------------------------------------------------------


def shown(config: Mapping[str, str]) -> dict[str, str]:
    """The config for people's eyes."""
    return dict(hidden for hidden, _ in _pairs(config))


def kept(config: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """What was hidden on the way out is, when it comes back, what it was."""
    before = dict(_pairs(stored))
    return dict(before.get((key, text), (key, text)) for key, text in config.items())


def real(key: str, stored: Mapping[str, str]) -> str:
    """The name of a setting that was shown: it may hold a salt."""
    return next((name for (hidden, _), (name, _) in _pairs(stored) if hidden == key), key)


def _pairs(config: Mapping[str, str]) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """How each setting is shown, and what it is. Names that differ in their salt alone are numbered."""
    found: list[tuple[tuple[str, str], tuple[str, str]]] = []
    names: set[str] = set()
    for key, text in config.items():
        name, value = _shown(key, text)
        number = next(n for n in count(1) if (name if n == 1 else f"{name} ({n})") not in names)
        name = name if number == 1 else f"{name} ({number})"
        names.add(name)
        found.append(((name, value), (key, text)))
    return found


def require_told(config: Mapping[str, str]) -> None:
    """A secret that nobody has told yet cannot be kept."""
    for key, text in config.items():
        if (text == HIDDEN and secret(key)) or f".with.salt.{HIDDEN}" in key or f"://{HIDDEN}@" in text:
            raise ConfigError(
                f"{key} is {HIDDEN}, which stands for a secret that is kept, and none is kept.", hint="Write it out."
            )


def secret(key: str) -> bool:
    """Whether the value of this setting is nobody's business."""
    return redact({key: "x"}).get(key) == HIDDEN


def _shown(key: str, text: str) -> tuple[str, str]:
    if plain_reference(text):
        return key, text
    ((hidden, value),) = redact({key: text}).items()
    return hidden, value


def plain_reference(text: str) -> bool:
    """Whether a text is references alone: it names secrets, and tells none."""
    return bool(REFERENCE.search(text)) and not REFERENCE.sub("", text) and ":-" not in text


def secrets(config: Mapping[str, str]) -> list[str]:
    """Every text that no message may contain, the longest first: values of secret settings, secrets that references
    stand for, and credentials inside other values."""
    found: set[str] = set()
    for key, text in config.items():
        values = {text, *_resolved(text).values()} if secret(key) else _secret_references(key, text)
        found |= values | _hidden_parts(key, text)
    return sorted((f for f in found if f and f != HIDDEN and not plain_reference(f)), key=len, reverse=True)


def _secret_references(key: str, text: str) -> set[str]:
    """Of a setting that is not secret itself. A variable is secret by its own name or by the setting's; a file always
    is, and any value is that holds credentials: a port from a variable is none of these."""
    found: set[str] = set()
    for reference, value in _resolved(text).items():
        named_secret = _SECRET_NAME.search(key) or _SECRET_NAME.search(reference) or "${file:" in reference
        (shown,) = redact({key: value}).values()
        if shown != value:
            found |= {value} | _hidden_parts(key, value)
        elif named_secret and len(value) >= _SHORT:
            found.add(value)
    return found


def _resolved(text: str) -> dict[str, str]:
    """What the references in it stand for, each and together, by the text that refers to it."""
    found: dict[str, str] = {}
    for reference in (text, *(part[0] for part in REFERENCE.finditer(text))):
        try:
            found[reference] = resolve(reference)
        except ConfigError:  # it stands for nothing here, so no message can contain it
            continue
    return {reference: value for reference, value in found.items() if value != text}


def _hidden_parts(key: str, text: str) -> set[str]:
    """A salt in the name, a password in an address."""
    _, salted, salt = key.partition(".with.salt.")
    scheme, at, _ = text.partition("@")
    address = scheme.partition("://")[2] if at else ""
    return ({salt} if salted else set()) | {address, address.partition(":")[2]}


def scrubbed(text: str, hidden: list[str]) -> str:
    """A sentence without the secrets that slipped into it."""
    for value in hidden:
        text = text.replace(value, HIDDEN)
    return text
