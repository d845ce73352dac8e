# SPDX-License-Identifier: Apache-2.0
"""Writes the schema of the settings below `<service>.config` of the Helm chart, from the configuration classes.

Run it as `python -m tools.gen_chart_schema`; with `--check` it writes nothing and fails when the schema is out of date.
It writes `properties` of each `config` in deploy/k8s/reput/values.schema.json. The rest is written by hand, including
the names in `propertyNames`, which are settings that the chart decides itself.
A value of the chart becomes a variable of the environment, so numbers may be text. Helm then refuses the same values as
the service, except for rules that concern several settings.
"""

import importlib
import json
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from libs.runtime.config import SECTIONS, Field, fields_of
from tools.written import write_or_check

SCHEMA = Path(__file__).parent.parent / "deploy/k8s/reput/values.schema.json"
_ON_A_VOLUME = r"(/data|/disks/[a-z0-9-]+)/[^,]+"
ON_VOLUMES = rf"^({_ON_A_VOLUME}(,{_ON_A_VOLUME})*)?$"
"""Directories on the volumes that a pod has: its own, and the disks of `logDisks`."""

PATTERNS = {"log_dirs": ON_VOLUMES, "log_dirs_read_only": ON_VOLUMES}


def with_settings(text: str) -> str:
    """Return the schema with all settings of all services as they are now."""
    schema = json.loads(text)
    for section in SECTIONS:
        config = schema["properties"][section]["properties"]["config"]
        decided = config["propertyNames"]["not"]["enum"]
        fields = fields_of(importlib.import_module(f"services.{section}.bootstrap").Settings)
        config["properties"] = {field.name: schema_of(field) for field in fields if field.name not in decided}
        config["additionalProperties"] = False
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def schema_of(field: Field) -> dict[str, Any]:
    """Return the schema of a setting, with the words of docs/configuration.md."""
    schema = {"description": f"must be {field.expectation}", **_of_type(field.type)}
    if field.name in PATTERNS:
        schema["pattern"] = PATTERNS[field.name]
        schema["description"] += ", below /data or /disks/NAME: the volumes of a pod"
    return schema


def _of_type(kind: Any) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    if typing.get_origin(kind) is Annotated:
        kind, *metas = typing.get_args(kind)
        meta = next(meta for meta in metas if isinstance(meta, msgspec.Meta))
        known = {"minimum": meta.ge, "maximum": meta.le}
        bounds = {name: bound for name, bound in known.items() if bound is not None}
    origin = typing.get_origin(kind)
    if origin is Literal:
        return {"enum": list(typing.get_args(kind))}
    if origin in (types.UnionType, typing.Union):
        [kind] = [part for part in typing.get_args(kind) if part is not type(None)]
        return _of_type(kind)
    if kind is bool:
        return {"enum": [True, False, "true", "false"]}
    if kind is int:
        return {"type": ["integer", "string"], "pattern": "^-?[0-9]+$", **bounds}
    if kind is float:
        return {"type": ["number", "string"], "pattern": r"^-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$", **bounds}
    return {"type": "string"}


if __name__ == "__main__":
    sys.exit(write_or_check({SCHEMA: with_settings(SCHEMA.read_text(encoding="utf-8"))}))
