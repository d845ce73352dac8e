# SPDX-License-Identifier: Apache-2.0
"""`reput debug bundle`: one archive with all that help from others needs, and no secret."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.config import METRICS_PORTS
from cli.commands.debug.redact import redacted
from cli.commands.typed.group import command_group
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, note_line, print_json, write
from libs.figures import size_text

SIZE_BYTES_MAX = 64 << 20
"""Largest sum of all texts of a bundle."""

README = """This archive was made by `reput debug bundle`.

It has the states, metrics and settings of the services, versions, names and sizes of the store's files, and the last
lines of the log files that were named. It has no message, and no file of the store. Secrets are masked.
Names of topics, groups and machines are in it, and texts of log lines: read it before you send it to others.
A part that could not be made is a line that begins with `error:`.
"""

debug = command_group("Help in trouble: an archive with states, settings, metrics and versions.")


@debug.command("bundle")
def bundle(
    context: typer.Context,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The archive. [default: reput-debug-TIME.tar.gz]")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", exists=True, file_okay=False, help="List the files of this store.")
    ] = None,
    log: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Last lines of this log, repeatable.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVICE=URL", help="Where a service serves metrics. [default: usual ports here]"),
    ] = None,
    metrics_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with a token of metrics_token_file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an archive with states, metrics, live settings, versions, names and sizes of files, and ends of logs.

    It has no message and no secret, at most 64 MiB of text, and can be read by its owner only. It is also made when
    services are away: the archive then says so.

    Example: reput debug bundle --data-dir reput-data --log /var/log/reput.log
    """
    from cli.commands.debug.parts import made, parts_of, secrets_of
    from cli.connection.client import options_of
    from cli.connection.pages import Door

    urls = {service: f"http://127.0.0.1:{port}" for service, port in METRICS_PORTS.items()} | _urls(metrics or [])
    ca_file = context.find_root().obj["ca_file"]
    doors = {service: Door(url, ca_file, metrics_token_file) for service, url in urls.items()}
    texts: dict[str, str] = {}
    left_bytes = SIZE_BYTES_MAX
    for name, part in parts_of(context, doors, data_dir, log or []):
        note_line(name)
        text = made(part)
        size_bytes = len(text.encode("utf-8", "replace"))
        texts[name] = text if size_bytes <= left_bytes else "error: the bundle is full\n"
        left_bytes -= min(size_bytes, left_bytes)
    token = options_of(context).token
    secrets = secrets_of(texts, token if isinstance(token, str) else token())
    if metrics_token_file is not None:
        with suppress(OSError):
            secrets |= set(metrics_token_file.read_text(encoding="utf-8", errors="replace").split())
    clean = {name: redacted(text, secrets) for name, text in texts.items()}
    file = output or Path(time.strftime("reput-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    write_archive(file, {"README.txt": README, **clean})
    failed = [name for name, text in clean.items() if text.startswith("error: ")]
    size_bytes = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "size_bytes": size_bytes, "parts": list(clean), "failed": failed})
    else:
        missing = f"; not to be had: {', '.join(failed)}" if failed else ""
        write(f"{file}: {len(clean)} parts, {size_text(size_bytes)}{missing}\n")


def _urls(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        service, _, url = text.partition("=")
        if service not in METRICS_PORTS or not url:
            names = ", ".join(METRICS_PORTS)
            raise typer.BadParameter(f"{text!r} must be SERVICE=URL, with one of {names}", param_hint="--metrics")
        found[service] = url
    return found


def write_archive(file: Path, texts: Mapping[str, str]) -> None:
    """Write an archive in one step, for its owner only. Raises CommandFailed if the file exists, and OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    folder, now_s = file.name.partition(".")[0] or "reput-debug", int(time.time())
    try:
        with os.fdopen(handle, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for part, text in texts.items():
                data = text.encode("utf-8", "backslashreplace")
                entry = tarfile.TarInfo(f"{folder}/{part}")
                entry.size, entry.mtime, entry.mode = len(data), now_s, 0o600
                archive.addfile(entry, io.BytesIO(data))
        os.link(name, file)
    except FileExistsError as error:
        raise CommandFailed("FILE", f"{file} exists already", code=ExitCode.FAILED) from error
    finally:
        with suppress(OSError):
            Path(name).unlink()
