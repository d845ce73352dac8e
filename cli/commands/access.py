# SPDX-License-Identifier: Apache-2.0
"""`reput access …`: rights files, without a store."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, note_line, warning_line, write
from cli.output.tables import print_fields, print_rows
from libs.runtime.errors import ConfigError

access = command_group("Rights of named callers: try a rule, check a rights file, import RocketMQ's lists.")

COLUMNS = ("subject", "tokens", "certificates", "access_keys", "rules")
FILE_SIZE_BYTES_MAX = 16 << 20


@access.command("test")
def try_rule(
    subject: Annotated[str, typer.Argument(help="Name of the subject; `anonymous` is a caller without one.")],
    action: Annotated[str, typer.Argument(help="produce, consume, query or administer.")],
    resource: Annotated[str, typer.Argument(help="Name of a topic, or topic:NAME, group:NAME, store.")],
    rights: Annotated[Path, typer.Option(metavar="FILE", help="The rights file.")],
    as_json: JsonOption = False,
) -> None:
    """Print whether a subject may do something, and the rule that decides.

    The exit code is 0 if it may, and 5 if not.

    Example: reput access test billing consume group:billing --rights rights.toml
    """
    from libs.runtime.trust.rights.rights_file import ACTIONS, OPERATOR, SERVICE, read_rights
    from libs.runtime.trust.rights.rules import ANONYMOUS, Subject

    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} must be {', '.join(ACTIONS)}", param_hint="ACTION")
    asked = _resource(resource)
    file = read_rights(rights)
    if subject not in (*file.names, ANONYMOUS, OPERATOR, SERVICE):
        text = f"{rights} has no subject {subject!r}"
        raise CommandFailed("SUBJECT_NOT_FOUND", text, code=ExitCode.NOT_FOUND)
    trusted = subject in (OPERATOR, SERVICE)
    found = Subject(subject, is_trusted=True) if trusted else file.rights.subject(subject)
    verdict = found.decide(ACTIONS[action], asked)
    fields = {
        "subject": subject,
        "action": action,
        "resource": str(asked),
        "is_allowed": verdict.is_allowed,
        "reason": "it needs no rule" if trusted else verdict.reason,
    }
    print_fields(fields, as_json=as_json)
    if not verdict.is_allowed:
        raise typer.Exit(ExitCode.REFUSED)


@access.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="The rights file.")],
    as_json: JsonOption = False,
) -> None:
    """Check a rights file as a service does at its start, and list its subjects.

    Example: reput access check /etc/reput/rights.toml
    """
    from libs.runtime.trust.rights.rights_file import read_rights

    found = read_rights(file)
    rows = [
        {
            "subject": name,
            "tokens": list(found.tokens.values()).count(name),
            "certificates": list(found.certificates.values()).count(name),
            "access_keys": list(found.access_keys.values()).count(name),
            "rules": sum(rule.covers(name) for rule in found.rights.rules),
        }
        for name in found.names
    ]
    for row in rows:
        if not (row["tokens"] or row["certificates"] or row["access_keys"]):
            warning_line(f"{row['subject']} has no credential, so no caller is this subject")
    print_rows(rows, COLUMNS, as_json=as_json)
    note_line(f"{file} is right: {len(rows)} subjects, {len(found.rights.rules)} rules")


@access.command("import")
def import_lists(
    files: Annotated[list[Path], typer.Argument(help="plain_acl.yml, or JSON files with users and lists of ACL 2.0.")],
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="The rights file to write. [default: output]")] = None,
    access_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the gateway's file of access keys, mode 600.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a rights file from RocketMQ's access control lists.

    A user becomes a subject with an access key of its name. No subject gets more than it had: rights that have no equal
    are left out, each with a warning. No file is replaced.

    Example: reput access import plain_acl.yml --to rights.toml --access-keys access.keys
    """
    from cli.access.draft import Draft
    from cli.access.rocketmq import read_lists

    draft = Draft()
    read_lists(draft, [(_content(path), str(path)) for path in files])
    for note in draft.notes:
        warning_line(note)
    if access_keys is not None:
        _write_new(access_keys, draft.keys_text())
    text = draft.text(", ".join(path.name for path in files))
    if to is not None:
        _write_new(to, text)
    if to is None and not as_json:
        write(text)
        return
    fields: dict[str, object] = {"rights": text if to is None else str(to), "subjects": len(draft.rules)}
    fields |= {"rules": sum(map(len, draft.rules.values())), "left_out": len(draft.notes)}
    print_fields(fields, as_json=as_json)


def _content(path: Path) -> Any:
    """Return the content of a file, which is YAML: each JSON text is YAML, too. Raises ConfigError."""
    import yaml

    if path.stat().st_size > FILE_SIZE_BYTES_MAX:
        raise ConfigError(f"{path}: the file has more than {FILE_SIZE_BYTES_MAX} bytes")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())}") from error


def _write_new(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _resource(text: str) -> Any:
    from libs.runtime.trust.rights.rules import STORE, Kind, Resource

    if text == "store":
        return STORE
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = "topic", text
    if kind not in ("topic", "group") or not name:
        raise typer.BadParameter(f"{text!r} must be NAME, topic:NAME, group:NAME or store", param_hint="RESOURCE")
    return Resource(Kind(kind), name)
