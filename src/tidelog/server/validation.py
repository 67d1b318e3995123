"""Configs, looked at before anything is stored or started, in the form of Kafka Connect's `validate`.

Every setting is declared once, where it is read; this page only says where in the flat config it stands. A value with
a reference (`${PGPASSWORD}`) is not looked at: what it stands for is known when the connector starts, and not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog import connectors
from tidelog.connectors import Plugin
from tidelog.core.settings import REFERENCE, Setting, boolean, count, nearest, patterns, port, unknown, whole
from tidelog.engine import flat
from tidelog.engine.definition import JOURNAL, STREAM
from tidelog.errors import ConfigError

GROUPS = ("Common", "Source", "Snapshot", "Sink", "Stream", "Journal")
_SNAPSHOT = re.compile(r"(incremental\.)?(snapshot|signal|notification)\.|read\.only")
_TYPES = {boolean: "BOOLEAN", int: "INT", whole: "INT", port: "INT", count: "LONG", patterns: "LIST"}


@dataclass(frozen=True)
class Field:
    """A setting where the flat config has it."""

    name: str
    setting: Setting
    group: str

    def accepts(self, name: str) -> bool:
        if not self.setting.pattern:
            return self.name == name
        prefix = self.name.removesuffix(self.setting.name)
        return name.startswith(prefix) and self.setting.accepts(name.removeprefix(prefix))


@dataclass(frozen=True)
class Checked:
    """One setting of a config, and what is wrong with it."""

    field: Field
    value: str | None
    errors: tuple[str, ...] = ()


def fields(plugin: Plugin, sink: str = "") -> list[Field]:
    """Every setting that a config of this plugin may have."""
    found = [Field(s.name, s, "Common") for s in _common(plugin)]
    found += [Field(s.name, s, _group(s.name)) for s in flat.settings(plugin) or ()]
    found += [Field(f"sink.{s.name}", s, "Sink") for s in _sink_settings(sink, plugin.captures)]
    found += [Field(f"stream.{s.name}", s, "Stream") for s in STREAM]
    found += [Field(f"journal.{s.name}", s, "Journal") for s in JOURNAL]
    return found


def check(config: Mapping[str, str], plugin: Plugin) -> list[Checked]:
    """Every setting with its value, defaults included, and everything that is wrong."""
    known = fields(plugin, config.get("sink.type", ""))
    checked = [_checked(field, config) for field in known if not field.setting.pattern]
    checked += [_matched(name, text, known, plugin) for name, text in _others(config, known)]
    if any(c.errors for c in checked):
        return checked
    return _together(checked, config, plugin)


def require_valid(config: Mapping[str, str]) -> None:
    """Refuse a config that could not be started; all its mistakes in one answer."""
    found = [error for checked in check(config, flat.plugin_of(config)) for error in checked.errors]
    if found:
        raise ConfigError(
            f"Connector configuration is invalid and contains the following {len(found)} error(s): {' '.join(found)}",
            hint="PUT it to /connector-plugins/{plugin}/config/validate to see them by setting.",
        )


# -- the settings ----------------------------------------------------------------------------------------------------


def _common(plugin: Plugin) -> tuple[Setting, ...]:
    return (
        Setting("name", "Name of the connector; its state lives under this name.", None, _name),
        Setting(flat.CLASS, f"The plugin: {', '.join(plugin.names)}.", None, connectors.plugin),
        Setting(flat.TASKS, "A connector is one task; Spark spreads its work.", "1", choices=("1",)),
    )


def _name(text: str) -> str:
    if not flat.named(text):
        raise ValueError("use letters, digits, '.', '_' and '-', starting with a letter or digit, up to 64")
    return text


def _group(name: str) -> str:
    return "Snapshot" if _SNAPSHOT.match(name) else "Source"


def _sink_settings(kind: str, required: bool) -> tuple[Setting, ...]:
    from tidelog.spark.sinks import TYPES

    default = None if required else ""
    which = Setting("type", "Where the changes go.", default, choices=(*TYPES, *(() if required else ("",))))
    return (which, *TYPES[kind][0]) if kind in TYPES else (which,)


# -- what is wrong ---------------------------------------------------------------------------------------------------


def _checked(field: Field, config: Mapping[str, str]) -> Checked:
    setting, text = field.setting, config.get(field.name)
    if not text and (text is None or setting.default is None):
        missing = (f"The setting {field.name} is missing. {setting.meaning}",) if setting.default is None else ()
        return Checked(field, setting.default or None, missing)
    return Checked(field, text, _errors(field, field.name, text or ""))


def _matched(name: str, text: str, known: Sequence[Field], plugin: Plugin) -> Checked:
    """A setting whose name is a pattern, or none that we know."""
    field = next((f for f in known if f.accepts(name)), None)
    if field is not None:
        own = Field(name, replace(field.setting, name=name, pattern=""), field.group)
        return Checked(own, text, _errors(field, name, text))
    stranger = Field(name, Setting(name, "Taken as it is."), _group(name))
    section, dot, _ = name.partition(".")
    if flat.settings(plugin) is None and not (dot and section in flat.PREFIXED):
        return Checked(stranger, text)
    if section == "spark" and dot:
        return Checked(stranger, text, (str(flat.no_spark()),))
    told = unknown(name, [f.name for f in known], subject=f"The connector {plugin.name}")
    return Checked(stranger, text, (str(told),))


def _others(config: Mapping[str, str], known: Sequence[Field]) -> Iterator[tuple[str, str]]:
    fixed = {f.name for f in known if not f.setting.pattern}
    return ((name, text) for name, text in config.items() if name not in fixed)


def _errors(field: Field, name: str, text: str) -> tuple[str, ...]:
    if REFERENCE.search(text):
        return ()
    try:
        replace(field.setting, name=field.name).read(text, name)
    except ConfigError as exc:
        return (str(exc),)
    return ()


def _together(checked: list[Checked], config: Mapping[str, str], plugin: Plugin) -> list[Checked]:
    """What can only be told of all settings together; a connector is made, and nothing is connected."""
    if not plugin.captures or any(REFERENCE.search(text) for text in config.values()):
        return checked
    options = {k: v for k, v in flat.sections(config)["source"].items() if k != "connector"}
    try:
        connectors.create(plugin.name, options, pipeline=config["name"])
    except ConfigError as exc:
        return _blame(checked, str(exc))
    return checked


def _blame(checked: list[Checked], sentence: str) -> list[Checked]:
    """The setting that the sentence names, else the plugin."""
    named = [c.field.name for c in checked if c.field.name in sentence]
    guilty = max(named, key=len, default=flat.CLASS)
    return [replace(c, errors=(sentence,)) if c.field.name == guilty else c for c in checked]


# -- Kafka Connect's form --------------------------------------------------------------------------------------------


def report(config: Mapping[str, str], plugin: Plugin) -> dict[str, Any]:
    """The answer of `validate`; secrets are hidden."""
    checked = check(config, plugin)
    hidden = flat.secrets(config)
    return {
        "name": plugin.classes[0],
        "error_count": sum(len(c.errors) for c in checked),
        "groups": list(GROUPS),
        "configs": [_info(c, order, hidden) for order, c in enumerate(checked, 1)],
    }


def definitions(plugin: Plugin) -> list[dict[str, Any]]:
    """The settings alone, with those of the sink that most have."""
    return [definition(field, order) for order, field in enumerate(fields(plugin, "delta"), 1)]


def definition(field: Field, order: int) -> dict[str, Any]:
    setting = field.setting
    return {
        "name": field.name,
        "type": "PASSWORD" if setting.secret else _TYPES.get(setting.kind, "STRING"),
        "required": setting.default is None,
        "default_value": setting.default,
        "importance": "HIGH" if setting.default is None else "MEDIUM",
        "documentation": setting.meaning,
        "group": field.group,
        "width": "SHORT" if setting.kind in _TYPES or setting.choices else "MEDIUM",
        "display_name": field.name,
        "dependents": [],
        "order": order,
    }


def _info(checked: Checked, order: int, hidden: list[str]) -> dict[str, Any]:
    ((name, value),) = flat.shown({checked.field.name: checked.value or ""}).items()
    shown = replace(checked.field, name=name)
    return {
        "definition": definition(shown, order),
        "value": {
            "name": name,
            "value": None if checked.value is None else value,
            "recommended_values": list(checked.field.setting.choices),
            "errors": [flat.scrubbed(error, hidden) for error in checked.errors],
            "visible": True,
        },
    }


def closest(name: str, names: Sequence[str]) -> str:
    """A hint for a name that is not there."""
    near = nearest(name, list(names))
    return f"Did you mean {near!r}?" if near else ""
