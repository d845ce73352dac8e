# SPDX-License-Identifier: Apache-2.0
"""The reasons for which a process can't start. The text of each is a line for the operator."""


class StartError(Exception):
    """Base class: the process ends with a single line on standard error and no traceback."""


class ConfigError(StartError):
    """A setting is unknown, missing, of the wrong type, out of range, or contradicts another."""


class PortInUse(StartError):
    """Another process listens on the address."""

    def __init__(self, address: str, *, setting: str) -> None:
        super().__init__(f"{address} is in use by another process; choose another {setting}")
        self.address, self.setting = address, setting


class ListenFailed(StartError):
    """The process can't listen on the address for another reason: no such host, no permission."""

    def __init__(self, address: str, *, reason: str) -> None:
        super().__init__(f"can't listen on {address}: {reason}")
        self.address, self.reason = address, reason
