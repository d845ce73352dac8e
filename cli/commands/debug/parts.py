# SPDX-License-Identifier: Apache-2.0
"""The parts of a debug bundle. Each is text; a part that fails is the reason. Sizes are bounded.

Imported only when a bundle is made, because it imports the client.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

import typer

from cli.commands.check import forms
from cli.commands.check.gather import facts_of
from cli.commands.check.rules import Thresholds, findings_of
from cli.connection.pages import Door, page_of
from cli.exit_codes import CommandFailed
from libs.runtime.errors import ConfigError
from libs.runtime.trust.tokens import local_token_path
from libs.runtime.version import VERSION

PART_SIZE_BYTES_MAX = 4 << 20
LOG_SIZE_BYTES_MAX = 1 << 20
FILE_COUNT_MAX = 20_000
SECRET_FILE_SIZE_BYTES_MAX = 1 << 16
SECRET_FILES = ("token_file", "password_file", "access_keys_file")
"""The ends of settings that name files with secrets."""
RIGHTS_FILE = "rights_file"
"""The setting whose file names files with the tokens of subjects."""

Part = Callable[[], str]


def parts_of(
    context: typer.Context, doors: Mapping[str, Door], data_dir: Path | None, logs: Sequence[Path]
) -> Iterator[tuple[str, Part]]:
    """Yield the name of each part, and the function that makes it."""
    yield "versions.json", versions_text
    yield "check.txt", lambda: _check_text(context)
    yield "status.json", lambda: _status_text(context)
    for service, door in doors.items():
        yield f"{service}/settings.json", lambda door=door: _page(door, "/settings")  # type: ignore[misc]
        yield f"{service}/metrics.txt", lambda door=door: _page(door, "/metrics")  # type: ignore[misc]
    if data_dir is not None:
        yield "files.tsv", lambda: files_text(data_dir)
    for number, log in enumerate(logs, 1):
        yield f"logs/{number}-{log.name}", lambda log=log: tail_text(log)  # type: ignore[misc]


def made(part: Part) -> str:
    """Return a part, cut to its largest size, or the reason why there is none."""
    try:
        text = part()
    except (CommandFailed, OSError, ValueError, typer.BadParameter) as error:
        return f"error: {error}\n"
    except Exception as error:  # noqa: BLE001 - a bundle is made while things are broken
        return f"error: {type(error).__name__}: {error}\n"
    if len(text) > PART_SIZE_BYTES_MAX:
        text = f"{text[:PART_SIZE_BYTES_MAX]}\n… cut, {len(text)} characters\n"
    return text


def versions_text() -> str:
    """Return the versions of Reput, Python, the system and all packages."""
    packages = sorted({f"{one.metadata['Name']}=={one.version}" for one in distributions()})
    limits = {}
    for name in ("/proc/sys/vm/max_map_count", "/proc/sys/vm/overcommit_memory", "/proc/meminfo", "/proc/loadavg"):
        try:
            limits[name] = Path(name).read_text(encoding="utf-8")[:4096]
        except OSError as error:
            limits[name] = str(error)
    found = {
        "reput": VERSION,
        "python": sys.version,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "time_s": time.time(),
        "system_files": limits,
        "packages": packages,
    }
    return json.dumps(found, indent=1) + "\n"


def files_text(data_dir: Path) -> str:
    """Return the files below a directory with size, blocks, mode and time, and no content. Bounded."""
    space = os.statvfs(data_dir)
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    lines = [f"# {data_dir}: {total} bytes, {free} free, {space.f_files} files, {space.f_favail} free"]
    lines.append("size_bytes\tblock_bytes\tmode\tmodified\tpath")
    for folder, folders, names in os.walk(data_dir):
        folders.sort()
        for name in sorted(names):
            if len(lines) > FILE_COUNT_MAX:
                return "\n".join([*lines, f"# cut after {FILE_COUNT_MAX} files"]) + "\n"
            path = Path(folder, name)
            try:
                found = path.lstat()
            except OSError as error:
                lines.append(f"# {path}: {error.strerror}")
                continue
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
            place = str(path.relative_to(data_dir)).encode("utf-8", "backslashreplace").decode()
            lines.append(f"{found.st_size}\t{found.st_blocks * 512}\t{found.st_mode:o}\t{when}\t{place!r}")
    return "\n".join(lines) + "\n"


def tail_text(file: Path) -> str:
    """Return the last lines of a log file, at most LOG_SIZE_BYTES_MAX bytes of them. Raises OSError."""
    with file.open("rb") as log:
        size_bytes = log.seek(0, os.SEEK_END)
        log.seek(max(0, size_bytes - LOG_SIZE_BYTES_MAX))
        data = log.read(LOG_SIZE_BYTES_MAX)
    if size_bytes > LOG_SIZE_BYTES_MAX:
        data = data[data.find(b"\n") + 1 :]  # the first line is not whole
    return data.decode("utf-8", "backslashreplace")


def secrets_of(texts: Mapping[str, str], token: str) -> set[str]:
    """Return the secrets that are known here: the command's token, that of the user, and the words of secret files.

    These are the files that settings name, and those that a rights file among them names for its subjects.
    """
    files: set[Path] = set()
    with suppress(ConfigError):
        files.add(local_token_path())
    for name, text in texts.items():
        if name.endswith("/settings.json"):
            try:
                rows = json.loads(text)["settings"]
            except (ValueError, KeyError, TypeError):
                continue
            given = [(str(row["setting"]), Path(str(row["value"]))) for row in rows if row["value"]]
            files.update(path for setting, path in given if setting.endswith(SECRET_FILES))
            for setting, path in given:
                if setting == RIGHTS_FILE:
                    files.update(_files_of_subjects(path))
    found = {token}
    for file in files:
        try:
            with file.open("rb") as secret:
                found.update(secret.read(SECRET_FILE_SIZE_BYTES_MAX).decode("utf-8", "replace").split())
        except OSError:
            continue  # of another machine, or not for this user: then it is not in this bundle's logs either
    return found - {""}


def _files_of_subjects(rights: Path) -> list[Path]:
    """Return the files of tokens that a rights file names, also if it is wrong in another place."""
    try:
        subjects = tomllib.loads(rights.read_text(encoding="utf-8")).get("subjects", [])
    except (OSError, ValueError):
        return []
    named = [one.get("token_file") for one in subjects if isinstance(one, dict)] if isinstance(subjects, list) else []
    return [rights.parent / name for name in named if isinstance(name, str)]


def _page(door: Door, path: str) -> str:
    return page_of(door, path).decode("utf-8", "replace")


def _check_text(context: typer.Context) -> str:
    return forms.nagios_text(findings_of(facts_of(context), Thresholds()))


def _status_text(context: typer.Context) -> str:
    from cli.commands.state.status import document, first_look

    found = first_look(context)
    return json.dumps(found if isinstance(found, dict) else document(found), indent=1, default=str) + "\n"
