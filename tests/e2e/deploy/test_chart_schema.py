# SPDX-License-Identifier: Apache-2.0
"""The schema of the chart's values, read without helm: which settings of a service it takes."""

import json
import re
from typing import Any

import pytest

from libs.runtime.config import SECTIONS
from tools import gen_chart_schema

PYTHON_TYPES = {"integer": int, "number": int | float, "string": str}


def config_of(section: str) -> dict[str, Any]:
    schema = json.loads(gen_chart_schema.SCHEMA.read_text(encoding="utf-8"))
    config = schema["properties"][section]["properties"]["config"]
    assert isinstance(config, dict)
    return config


def is_taken(section: str, name: str, value: object) -> bool:
    """Whether the schema accepts a value, decided as a validator does for the few words of these schemas."""
    config = config_of(section)
    schema = config["properties"].get(name)
    if schema is None or name in config["propertyNames"]["not"]["enum"]:
        return bool(config["additionalProperties"])
    assert schema.keys() <= {"description", "type", "enum", "pattern", "minimum", "maximum"}
    if "enum" in schema:
        return any(value is choice or (isinstance(value, str) and value == choice) for choice in schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, bool) or not any(isinstance(value, PYTHON_TYPES[kind]) for kind in kinds):
        return False
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    assert isinstance(value, int | float)
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("commitlog", "segment_size_bytes", 1 << 30),
        ("commitlog", "segment_size_bytes", "1073741824"),
        ("commitlog", "role", "async_master"),
        ("commitlog", "trace_ratio", 0.25),
        ("commitlog", "transient_store_pool", True),
        ("commitlog", "transient_store_pool", "false"),
        ("commitlog", "log_dirs", "/data/a,/data/b"),
        ("commitlog", "store_host", "192.0.2.1:7101"),
        ("janitor", "retention_hours", 168),
        ("delivery", "log_level", "debug"),
    ],
)
def test_settings_are_taken(section: str, name: str, value: object) -> None:
    """The schema accepts a value that the service accepts, as a number or as text."""
    assert is_taken(section, name, value)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("commitlog", "segment_size_byte", 24),
        ("commitlog", "retention_hours", 72),
        ("janitor", "retention_hours", "x"),
        ("janitor", "retention_hours", -1),
        ("commitlog", "role", "master"),
        ("commitlog", "transient_store_pool", "yes"),
        ("commitlog", "transient_store_pool", 1),
        ("commitlog", "log_dirs", "/a,/b"),
        ("commitlog", "log_dirs", "/data/a,/b"),
        ("commitlog", "port", 1),
        ("gateway", "data_dir", "/x"),
    ],
)
def test_what_a_service_refuses_is_refused(section: str, name: str, value: object) -> None:
    """The schema refuses a wrong name, a wrong type, and a directory without a volume.

    So helm refuses the value before a pod ends with exit code 2.
    """
    assert not is_taken(section, name, value)


@pytest.mark.parametrize("section", SECTIONS)
def test_names_that_the_chart_decides_are_settings_or_nothing(section: str) -> None:
    """No setting is both accepted in the values and decided by the chart."""
    config = config_of(section)
    assert not set(config["properties"]) & set(config["propertyNames"]["not"]["enum"])
