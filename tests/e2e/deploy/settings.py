# SPDX-License-Identifier: Apache-2.0
"""Settings that a manifest gives to a service, read as the service itself will read them."""

import importlib
from collections.abc import Mapping
from typing import Any

from libs.runtime.config import load


def load_settings(service: str, environment: Mapping[str, str]) -> Any:
    """Return the service's settings from these variables.

    An unknown variable, a wrong type or a wrong value raises ConfigError.
    """
    settings_class = importlib.import_module(f"services.{service}.bootstrap").Settings
    return load(settings_class, section=service, environment=environment, flags={}).value
