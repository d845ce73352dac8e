# SPDX-License-Identifier: Apache-2.0
"""The settings of the five services, as an operator meets them: a short list to begin with, and all others."""

import importlib

import pytest

from libs.runtime.config import SECTIONS, Field, fields_of
from tests.support.reput_up import run_here

BASIC_COUNT_MAX = 25
"""Settings that an operator reads before the first start of a service: two screens of docs/configuration.md."""


def settings_of(section: str) -> list[Field]:
    """All settings of a service. Asserts that each is marked as basic or advanced."""
    return fields_of(importlib.import_module(f"services.{section}.bootstrap").Settings)


@pytest.mark.parametrize("section", SECTIONS)
def test_each_setting_is_marked_and_the_basic_ones_fit_on_two_screens(section: str) -> None:
    """Each setting of a service is basic or advanced, and at most 25 are basic."""
    basic = [field.name for field in settings_of(section) if field.is_basic]
    assert 0 < len(basic) <= BASIC_COUNT_MAX, basic


@pytest.mark.parametrize("section", SECTIONS)
def test_a_required_setting_is_basic(section: str) -> None:
    """A setting without a default is among the settings that an operator reads first."""
    assert [field.name for field in settings_of(section) if field.is_required and not field.is_basic] == []


def test_only_the_basic_settings_are_printed() -> None:
    """`reput config show --basic` prints the basic settings alone, and JSON names the importance of each setting."""
    shown = {row["setting"]: row["importance"] for row in run_here("config", "show", "janitor", "--json").rows}
    basic = [row["setting"] for row in run_here("config", "show", "janitor", "--basic", "--json").rows]
    assert basic == [name for name, importance in shown.items() if importance == "basic"]
    assert ("retention_hours" in basic, "check_interval_ms" in basic) == (True, False)
