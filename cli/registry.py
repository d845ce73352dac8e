# SPDX-License-Identifier: Apache-2.0
"""The command tree of `reput` and its one way to fail: a line on standard error and an exit code."""

import platform
import sys

import grpc
import typer
from reput_client import ReputError

from cli.commands import index, inspect, lead, operate, put, read, serve, topics, up, verify
from cli.connection import connection_options
from cli.exit_codes import MEANINGS, SERVE_MEANINGS, CommandFailed, ExitCode, code_of
from cli.output import JsonOption, error_line, forget_output, prepare_output, print_fields
from libs.runtime.errors import StartError
from libs.runtime.version import VERSION

EPILOG = "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items()) + "."
SERVE_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in SERVE_MEANINGS.items()) + "."

app = typer.Typer(
    name="reput", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False
)
app.callback(epilog=EPILOG)(connection_options)

app.command(epilog=SERVE_EPILOG)(up.up)
app.add_typer(serve.serve, name="serve", epilog=SERVE_EPILOG)
app.command()(put.put)
app.command()(read.pull)
app.command()(read.tail)
app.add_typer(read.query, name="query")
app.add_typer(topics.topics, name="topics")
app.add_typer(topics.groups, name="groups")
app.command()(operate.status)
app.command()(operate.segments)
app.command()(lead.replicas)
app.command()(lead.handover)
app.command()(lead.promote)
app.add_typer(operate.janitor, name="janitor")
app.command()(operate.health)
app.command()(inspect.inspect)
app.command()(verify.verify)
app.add_typer(index.index, name="index")
app.add_typer(serve.config, name="config")


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Print the versions of Reput and of what it runs on."""
    versions: dict[str, object] = {
        "reput": VERSION,
        "python": platform.python_version(),
        "grpc": grpc.__version__,
    }
    print_fields(versions, as_json=as_json)


def run() -> int:
    """Run a command. Never ends with a traceback for an error of the world or a Ctrl-C."""
    try:
        prepare_output()
        try:
            app(prog_name="reput")
        finally:
            sys.stdout.flush()
    except ReputError as error:
        error_line(error)
        return code_of(error)
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
    except ValueError as error:  # an argument that no request can carry
        error_line(f"BAD_ARGUMENT: {error}")
        return ExitCode.USAGE
    except OSError as error:
        error_line(f"FILE: {error.filename}: {error.strerror}" if error.filename is not None else f"SYSTEM: {error}")
        return ExitCode.FAILED
    return ExitCode.OK
