# SPDX-License-Identifier: Apache-2.0
"""Why a process can't start. The text of each is one line for the person who started it."""


class StartError(Exception):
    """Base: the process ends with one line on standard error and no traceback."""


class ConfigError(StartError):
    """A setting is unknown, missing, of the wrong type, out of range, or contradicts another."""


class PortInUse(StartError):
    """Another process listens on the address."""

    def __init__(self, address: str, *, setting: str) -> None:
        super().__init__(f"{address} is in use by another process; choose another {setting}")
        self.address, self.setting = address, setting


class ListenFailed(StartError):
    """The address can't be listened on for another reason: no such host, no permission."""

    def __init__(self, address: str, *, reason: str) -> None:
        super().__init__(f"can't listen on {address}: {reason}")
        self.address, self.reason = address, reason
