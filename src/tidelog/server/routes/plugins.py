"""Plugins: which connectors there are, what can be set, and whether a source is ready."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter

from tidelog import connectors
from tidelog.connectors import PLUGINS, Plugin
from tidelog.contracts import Finding
from tidelog.core.offsets import schema
from tidelog.engine import flat
from tidelog.engine.definition import connector_of
from tidelog.engine.home import Home
from tidelog.errors import ConfigError, NotFound, TidelogError
from tidelog.model.version import __version__
from tidelog.server import models, validation
from tidelog.server.routes.asked import Admin, Asked, PluginName, Reader, answers, texts
from tidelog.server.service import Service
from tidelog.spark import sink_check

router = APIRouter(tags=["plugins"])


@router.get("/connector-plugins", responses=answers())
def list_plugins(_: Reader) -> list[models.Plugin]:
    """The connectors; there are no other kinds of plugins."""
    return [_plugin(plugin) for plugin in PLUGINS]


def _plugin(plugin: Plugin) -> models.Plugin:
    told: dict[str, Any] = {"class": plugin.classes[0], "version": __version__, "name": plugin.name}
    return models.Plugin.model_validate(told | {"title": plugin.title, "captures": plugin.captures})


def _found(name: str) -> Plugin:
    try:
        return connectors.plugin(name)
    except ConfigError as exc:
        raise NotFound(exc.message, hint=exc.hint) from exc


@router.get("/connector-plugins/{plugin}/config", responses=answers(404))
def get_plugin_config(plugin: PluginName, _: Reader) -> list[models.Definition]:
    """Every setting, with its meaning and its default."""
    return [models.Definition(**found) for found in validation.definitions(_found(plugin))]


@router.put("/connector-plugins/{plugin}/config/validate", responses=answers())
def validate_config(plugin: PluginName, config: models.Config, service: Asked, _: Admin) -> models.Validation:
    """What is wrong with a config, setting by setting. Nothing is stored or connected."""
    found = connectors.plugin(plugin)
    written = _stored(service, texts(config))
    if flat.plugin_of(written) != found:
        raise ConfigError(
            f"The config is for {written[flat.CLASS]!r}, and this is {found.name}.",
            hint=f"Ask for that plugin, or write {flat.CLASS}: {found.name}.",
        )
    return models.Validation(**validation.report(written, found))


@router.get("/connector-plugins/{plugin}/offset-schema", responses=answers(404))
def get_offset_schema(plugin: PluginName, _: Reader) -> dict[str, Any]:
    """The JSON Schema (2020-12) of its offsets, each field with its meaning."""
    return schema.of(connectors.offsets(_found(plugin).name).DOCUMENT)


@router.post("/connector-plugins/{plugin}/check", responses=answers(404))
def check_source(plugin: PluginName, body: models.CheckRequest, service: Asked, _: Admin) -> models.Findings:
    """Whether the source is ready, and what to change if not. It is connected to, and nothing is changed."""
    found = _found(plugin)
    config = {flat.CLASS: found.name, **_stored(service, texts(body.config))}
    hidden = flat.secrets(config)
    findings = [_scrubbed(finding, hidden) for finding in _findings(found, config)]
    return models.Findings(findings=[models.Finding(**asdict(finding)) for finding in findings])


def _stored(service: Service, config: dict[str, str]) -> dict[str, str]:
    """With the secrets that were hidden when the config was read."""
    try:
        return flat.kept(config, service.connector(config.get(flat.NAME, "")).config)
    except NotFound:
        return config


def _findings(plugin: Plugin, config: Mapping[str, str]) -> list[Finding]:
    wrong = [Finding("error", c.field.name, e) for c in validation.check(config, plugin) for e in c.errors]
    if wrong:
        return wrong
    if not plugin.captures:
        return [Finding("warning", "capture", plugin.state, "Create it with initial_state STOPPED.")]
    try:
        definition = flat.definition(config[flat.NAME], config)
        with closing(connector_of(definition)) as connector:
            found = [*connector.check(), *sink_check.findings(definition, connector)]
    except TidelogError as exc:
        return [Finding("error", "source", exc.message, exc.hint)]
    return [*found, _home(definition.name)]


def _home(name: str) -> Finding:
    pid = Home.at(name).holder()
    return Finding("ok", "state folder", f"{Home.at(name).path}{f'; process {pid} runs' if pid else ''}.")


def _scrubbed(finding: Finding, hidden: list[str]) -> Finding:
    meaning, cure = flat.scrubbed(finding.meaning, hidden), flat.scrubbed(finding.cure, hidden)
    return replace(finding, meaning=meaning, cure=cure)
