# SPDX-License-Identifier: Apache-2.0
"""Reload: reads the settings again at SIGHUP, and gives a running service those that it can take.

Invariants: a reload takes all changed settings that are live, or none. A wrong value, or values that contradict each
other, keep the old values. A setting that needs a restart keeps its old value, and the log names it.
The sources are those of the start: the same file, variables and flags.
Callers: the event loop's thread; `statistics` from any thread.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from libs.runtime.config import Loaded, Setting, build
from libs.runtime.errors import ConfigError
from libs.runtime.version import VERSION

S = TypeVar("S")

LOG_LEVEL = "log_level"
"""The setting that is live in every service."""

_log = logging.getLogger(__name__)


class ReloadStatistics(Struct, frozen=True):
    """The reloads since the start."""

    taken_total: int
    """Reloads (SIGHUP) that were taken, also without a change."""
    refused_total: int
    """Reloads (SIGHUP) that were refused because of a wrong setting."""
    is_last_taken: bool
    """Whether the last reload was taken. 1 before the first."""
    last_time_ms: int
    """The time of the last reload, since the epoch. 0 before the first."""


class Reload(Generic[S]):
    """The settings of a running service, and the way to read them again.

    `live` are the settings that `apply` can give to the running service; `apply` gets all settings, and must not fail.
    """

    def __init__(
        self,
        loaded: Loaded[S],
        again: Callable[[], Loaded[S]],
        live: Iterable[str],
        apply: Callable[[S], None],
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.loaded = loaded
        """The settings in force."""
        self.waiting: tuple[str, ...] = ()
        """Settings that changed, and that the service takes at its next start."""
        self._again, self._apply, self._now_s = again, apply, now_s
        self._live = frozenset(live) | {LOG_LEVEL}
        unknown = self._live - {setting.field.name for setting in loaded.settings}
        assert not unknown, f"live settings that are no settings: {unknown}"
        self._taken = self._refused = self._last_ms = 0
        self._is_last_taken = True

    def run(self) -> None:
        """Read the settings, and take what changed. Never raises."""
        self._last_ms = round(self._now_s() * 1000)
        try:
            found = self._again()
            merged = self._merged(found)
        except (ConfigError, ValueError) as error:
            self._refused, self._is_last_taken = self._refused + 1, False
            _log.warning("SIGHUP: no setting is changed: %s", error)
            return
        self._taken, self._is_last_taken = self._taken + 1, True
        before = {setting.field.name: setting for setting in self.loaded.settings}
        changed = [setting for setting in merged.settings if setting.value != before[setting.field.name].value]
        self.waiting = tuple(
            setting.field.name for setting in found.settings
            if setting.field.name not in self._live and setting.value != before[setting.field.name].value
        )  # fmt: skip
        self.loaded = merged
        if changed:
            self._apply(merged.value)
            level = next(setting.value for setting in merged.settings if setting.field.name == LOG_LEVEL)
            logging.getLogger().setLevel(str(level).upper())
        _log.info("SIGHUP: %s%s", _changes_text(changed, before), _waiting_text(self.waiting))

    def document(self) -> dict[str, object]:
        """Return the settings in force, with their sources, for readers that may see no secret."""
        return {
            "version": VERSION,
            "file": str(self.loaded.file or ""),
            "waiting": list(self.waiting),
            "settings": [
                {
                    "setting": setting.field.name,
                    "value": setting.value if isinstance(setting.value, bool) else setting.shown_value,
                    "source": setting.source,
                    "is_live": setting.field.name in self._live,
                }
                for setting in self.loaded.settings
            ],
        }

    def statistics(self) -> ReloadStatistics:
        """Return the reloads since the start."""
        return ReloadStatistics(self._taken, self._refused, self._is_last_taken, self._last_ms)

    def _merged(self, found: Loaded[S]) -> Loaded[S]:
        """Return the settings in force with the live settings of `found`. Raises ValueError if they contradict."""
        before = {setting.field.name: setting for setting in self.loaded.settings}
        settings = tuple(
            setting if setting.field.name in self._live else before[setting.field.name] for setting in found.settings
        )
        value = build(type(self.loaded.value), {setting.field.name: setting.value for setting in settings})
        return replace(self.loaded, value=value, settings=settings)


def take_over(held: Any, new: Any, names: Iterable[str]) -> None:
    """Give the settings object that an engine holds the values of another, for fields that it reads at each use.

    Settings are frozen for all code but this function, so that only a reload changes them.
    """
    for name in names:
        object.__setattr__(held, name, getattr(new, name))


def _changes_text(changed: Iterable[Setting], before: Mapping[str, Setting]) -> str:
    parts = [f"{one.field.name} is {one.shown_value}, was {before[one.field.name].shown_value}" for one in changed]
    return "; ".join(parts) if parts else "no live setting has changed"


def _waiting_text(waiting: Iterable[str]) -> str:
    names = ", ".join(waiting)
    return f"; changed, and taken at the next start: {names}" if names else ""
