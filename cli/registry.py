# SPDX-License-Identifier: Apache-2.0
"""The command tree of `reput` and its single form of failure: a line on standard error and an exit code.

A command's module is imported when the command is called; `reput --help` has the table below alone.
"""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer

from cli.commands.typed.group import Group
from cli.connection.options import connection_options
from cli.exit_codes import MEANINGS, SERVE_MEANINGS, CommandFailed, ExitCode, code_of
from cli.output.lines import error_line, forget_output, prepare_output
from libs.runtime.errors import StartError

EPILOG = "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items()) + "."
SERVE_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in SERVE_MEANINGS.items()) + "."
HELP_WIDTH_MAX = 110


class Entry(NamedTuple):
    """A command or a group: its module, and the first sentence of its help."""

    module: str
    attribute: str
    line: str
    epilog: str | None = None


COMMANDS = {
    "up": Entry(
        "up",
        "up",
        "Run all services over one directory until Ctrl-C, SIGTERM, or the end of the terminal (SIGHUP).",
        SERVE_EPILOG,
    ),
    "put": Entry("messages.put", "put", "Append messages."),
    "pull": Entry("messages.read", "pull", "Read messages of a topic by queue offset."),
    "tail": Entry("messages.read", "tail", "Print the newest messages of a topic, and follow its end with -f."),
    "status": Entry(
        "state.status",
        "status",
        "Show whether the store is healthy, the action if it is not, and how far each service is.",
    ),
    "check": Entry(
        "check.check",
        "check",
        "Check the store for a monitoring system: a line, the numbers, and a line for each finding with its cure.",
    ),
    "top": Entry(
        "state.top",
        "top",
        "Watch topics, groups, services and disks: incoming and outgoing messages, and groups that are behind.",
    ),
    "segments": Entry("state.segments", "segments", "List the segments of the log, oldest first."),
    "replicas": Entry(
        "lead",
        "replicas",
        "Show the followers of this log, how far behind each is, and whether REPLICATED waits for it.",
    ),
    "handover": Entry(
        "lead",
        "handover",
        "Make another log lead: the leader accepts no more appends, waits until the other log has all, and follows it.",
    ),
    "promote": Entry("lead", "promote", "Make a follower the leader, because its leader is lost."),
    "health": Entry("state.health", "health", "Ask servers whether they serve (the standard gRPC health service)."),
    "inspect": Entry("inspect", "inspect", "Print a store file and all faults in it."),
    "verify": Entry("verify", "verify", "Check every record, queue unit and index entry of a store, offline."),
    "debug": Entry("debug.bundle", "debug", "Help in trouble: an archive with states, settings, metrics and versions."),
    "bench": Entry(
        "debug.bench",
        "bench",
        "Measure a disk before it gets a store: appends with a sync each, a long write, and reads at random places.",
    ),
    "version": Entry("version", "version", "Print the versions of Reput, Python and gRPC."),
    "serve": Entry("serve", "serve", "Run a service in this process until SIGTERM or Ctrl-C.", SERVE_EPILOG),
    "console": Entry(
        "serve", "console", "Run the console: pages about a store for browsers, at http://127.0.0.1:7300.", SERVE_EPILOG
    ),
    "mcp": Entry(
        "mcp", "mcp", "Let programs with a language model look at the store: a read-only MCP server on standard input."
    ),
    "query": Entry("messages.read", "query", "Find messages by key, time or id."),
    "topics": Entry("topics", "topics", "Topics: list, show, create, change, purge, delete."),
    "shards": Entry(
        "shards.commands",
        "shards",
        "Shards: list them, make and change topics that lie on all of them, show where a topic is.",
    ),
    "groups": Entry("groups.groups", "groups", "Consumer groups: show their lag and policies, move or delete them."),
    "consume": Entry(
        "groups.consume",
        "consume",
        "Print messages that a group shares, and acknowledge them: each is delivered to a single member.",
    ),
    "delay": Entry("messages.delay", "delay", "Messages that wait for their time: list, cancel."),
    "dlq": Entry("groups.letters", "letters", "Dead letters of groups: list, show, replay."),
    "tx": Entry(
        "messages.transactions", "transactions", "Transactions: list open transactions, commit them or roll them back."
    ),
    "janitor": Entry(
        "janitor", "janitor", "Retention: the segments that expire, the time of expiry, and the reasons to keep."
    ),
    "clients": Entry(
        "callers.clients",
        "clients",
        "List the connections of the services: address, subject, client, groups, running calls.",
    ),
    "audit": Entry(
        "callers.audit", "audit", "Audit: administrative calls and refused calls, the latest of each service."
    ),
    "index": Entry("indexes.index", "index", "Indexes: build them again, remove queues that are not needed."),
    "access": Entry(
        "access", "access", "Rights of named callers: try a rule, check a rights file, import RocketMQ's lists."
    ),
    "backup": Entry("backups.backup", "backup", "Backups of a running store: create, list, verify, prune."),
    "restore": Entry("backups.restore", "restore", "Restore a backup into an empty directory."),
    "context": Entry("context", "context", "Named stores: their addresses and how to reach them."),
    "config": Entry("config", "config", "Settings of the services."),
}
"""By name, in the order of the help. Modules are below cli.commands."""


def load(name: str) -> Any:
    """Import a command and return it as Typer made it."""
    entry = COMMANDS[name]
    target = getattr(import_module(f"cli.commands.{entry.module}"), entry.attribute)
    if isinstance(target, typer.Typer):
        command: Any = typer.main.get_group(target)
    else:
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        settings = getattr(target, "context_settings", None)
        alone.command(
            name,
            cls=getattr(target, "command_class", None),
            context_settings=settings,
            add_help_option=settings is None,
        )(target)
        command = typer.main.get_command(alone)
    command.name, command.epilog = name, entry.epilog
    return command


class Loaded(Mapping[str, Any]):
    """The commands by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Root(Group):
    """`reput` itself."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Loaded()  # type: ignore[assignment]  # it is never changed

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - all are listed everywhere
        """Return all names, without importing anything."""
        return list(COMMANDS)

    def lines(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002 - as above
        """Return each command's name and sentence, from the table."""
        return [(name, entry.line) for name, entry in COMMANDS.items()]


app = typer.Typer(
    name="reput",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH_MAX},
)
app.callback(epilog=EPILOG)(connection_options)


def run() -> int:
    """Run a command. Never ends with a traceback for an error of the environment or a Ctrl-C."""
    try:
        prepare_output()
        try:
            app(prog_name="reput")
        finally:
            sys.stdout.flush()
    except CommandFailed as error:
        error_line(error)
        return error.code
    except StartError as error:
        error_line(f"CONFIG: {error}")
        return ExitCode.USAGE
    except BrokenPipeError:
        forget_output()
        return ExitCode.OK
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        forget_output()
        return ExitCode.OK
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except ValueError as error:  # an argument that does not fit into a request
        error_line(f"BAD_ARGUMENT: {error}")
        return ExitCode.USAGE
    except OSError as error:
        error_line(f"FILE: {error.filename}: {error.strerror}" if error.filename is not None else f"SYSTEM: {error}")
        return ExitCode.FAILED
    except _call_failed() as error:
        error_line(error)
        return code_of(error)
    return ExitCode.OK


def _call_failed() -> Any:
    """Return the class of failed calls. Called only after a failure, because it imports the client."""
    from reput_client import ReputError

    return ReputError
