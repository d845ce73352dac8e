# SPDX-License-Identifier: Apache-2.0
"""A command does not import modules that it does not need, and a deferred module is complete when it is used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.modules import modules_after
from tests.support.reput_up import environment

HEAVY = (
    "asyncio.events",
    "google.protobuf",
    "grpc",
    "pydantic",
    "reput_client",
    "rich",
    "numpy",
    "cli.commands.state.status",
)
ASYNC = ("asyncio.events", "grpc.aio._channel", "google.protobuf.internal.decoder", "pydantic", "rich", "numpy")
ROOT = Path(__file__).parents[3]


def after_command(*arguments: str) -> set[str]:
    """The modules that `reput` with these arguments needs."""
    return modules_after(
        f"import sys; sys.argv = ['reput', *{arguments!r}]\n"
        "from cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("put", "--help"), ("tpoics",), ("put", "--file")])
def test_help_needs_nothing(arguments: tuple[str, ...]) -> None:
    """Help imports neither the client nor modules that draw, and no command but the named command."""
    loaded = after_command(*arguments)
    assert loaded.isdisjoint(HEAVY)
    assert ("cli.commands.messages.put" in loaded) == (arguments[0] == "put")


@pytest.mark.parametrize("arguments", [("status",), ("pull", "t")])
def test_a_service_that_is_away_needs_no_client(arguments: tuple[str, ...]) -> None:
    """A command reports a missing service before gRPC is imported."""
    nobody = [text for name in ("commitlog", "indexer", "janitor") for text in (f"--{name}", "127.0.0.1:1")]
    assert after_command(*nobody, *arguments).isdisjoint({*HEAVY} - {"cli.commands.state.status"})


def test_a_client_needs_nothing_asynchronous() -> None:
    """A whole call over a channel, which fails, imports no asynchronous module."""
    loaded = modules_after(
        "from cli.connection import lean; lean.install()\n"
        "import reput_client\n"
        "client = reput_client.connect(commitlog='127.0.0.1:1', retry=reput_client.RetryPolicy(retries=0))\n"
        "try:\n    client.topics.get('t')\nexcept reput_client.UnavailableError:\n    pass\n"
        "client.close()"
    )
    assert "reput_client" in loaded
    assert loaded.isdisjoint(ASYNC)


def test_what_is_asked_for_is_there() -> None:
    """A deferred module is complete.

    Cases: by attribute, by `from`, a part of a package, and after a second import.
    """
    modules_after(
        "from cli.connection import lean; lean.install(); lean.install()\n"
        "import grpc, sys, asyncio, asyncio\n"
        "assert 'asyncio.events' not in sys.modules\n"
        "from asyncio import run\n"
        "async def three(): return 3\n"
        "assert run(three()) == 3 == asyncio.run(three())\n"
        "import asyncio.subprocess\n"
        "import grpc.aio\n"
        "from grpc.aio import insecure_channel\n"
        "async def close(): await grpc.aio.insecure_channel('127.0.0.1:1').close()\n"
        "asyncio.run(close())\n"
        "from google.protobuf import text_format, any_pb2\n"
        "assert text_format.MessageToString(any_pb2.Any(type_url='x')) == 'type_url: \"x\"\\n'\n"
        "assert type(asyncio) is type(sys), type(asyncio)\n"
        "try:\n    asyncio.nothing\nexcept AttributeError:\n    pass\n"
        "else:\n    raise SystemExit('no AttributeError')"
    )


@pytest.mark.parametrize(
    "line",
    [
        "import asyncio.base_events",
        "from asyncio.base_events import BaseEventLoop",
        "import asyncio; from asyncio.base_events import BaseEventLoop; assert asyncio.run",
        "import grpc; from grpc.aio._channel import Channel; assert grpc.aio.Channel",
        "import uvloop; assert uvloop.run",
    ],
)
def test_a_part_comes_after_its_package(line: str) -> None:
    """A package runs before its part, for any order of imports."""
    modules_after(f"from cli.connection import lean; lean.install()\n{line}")


def test_what_is_asked_of_the_standard_library_is_there() -> None:
    """Each deferred module works when it is used, also by others: a traceback shows its lines."""
    modules_after(
        "from cli.connection import lean; lean.install()\n"
        "import bz2, calendar, ipaddress, json, linecache, lzma, numbers, selectors, stringprep, subprocess\n"
        "import textwrap, tokenize, shutil, socket, traceback, inspect, sys, io\n"
        "later = {name for name in lean.LATER if type(sys.modules.get(name)) is lean.LaterModule}\n"
        "assert later >= {'bz2', 'linecache', 'subprocess', 'tokenize'}, later\n"
        "assert bz2.decompress(bz2.compress(b'x')) == lzma.decompress(lzma.compress(b'x')) == b'x'\n"
        "assert ipaddress.ip_address('::1').is_loopback\n"
        "assert calendar.isleap(2000) and isinstance(1, numbers.Number) and stringprep.in_table_a1('\\u0221')\n"
        "from json import loads\n"
        "assert loads('[1]') == json.loads('[1]') == [1]\n"
        "selectors.DefaultSelector().close()\n"
        "assert subprocess.run(['true'], capture_output=True).returncode == 0\n"
        "assert textwrap.dedent('  x') == 'x'\n"
        "assert 'def dedent' in inspect.getsource(textwrap.dedent)\n"
        "assert next(tokenize.tokenize(io.BytesIO(b'x').readline)).string == 'utf-8'\n"
        "try:\n    shutil.rmtree('/none')\nexcept OSError:\n    assert 'onerror(' in traceback.format_exc()\n"
        "assert linecache.getline(shutil.__file__, 1)"
    )


@pytest.mark.parametrize(("arguments", "is_taken_apart"), [("version --json", False), ("serve janitor --help", True)])
def test_a_short_command_ends_at_once(arguments: str, is_taken_apart: bool) -> None:
    """A short command ends at once, with all its output and its exit code.

    A command that runs a service ends as any program.
    """
    code = (
        f"import atexit, sys; sys.argv = ['reput', *{arguments.split()!r}]\n"
        "atexit.register(print, 'taken apart')\n"
        "from cli.main import command\n"
        "sys.exit(command())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment()
    )
    assert done.stdout.endswith("taken apart\n") == is_taken_apart
    assert done.stdout.startswith('{"reput": ') != is_taken_apart


def test_the_client_s_door() -> None:
    """A name of the client is imported when it is used, and type checkers see the same names as programs."""
    loaded = modules_after("import reput_client\nassert reput_client.__version__\nassert 'Client' in dir(reput_client)")
    assert loaded.isdisjoint({"grpc", "reput_client.sync.client", "reput_client.core.options"})
    import reput_client

    tree = ast.parse(Path(reput_client.__file__).read_text())
    told = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("reput_client.")
        for alias in node.names
    }
    assert sorted(told) == reput_client.__all__
    for name, module in told.items():
        assert getattr(reput_client, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        reput_client.Nonsense  # noqa: B018 - asking is enough


def test_threads_see_no_half_of_a_module() -> None:
    """A thread that uses a module while it is imported waits until the import is complete."""
    modules_after(
        "from cli.connection import lean; lean.install()\n"
        "import asyncio, threading\n"
        "found = []\n"
        "begin = threading.Barrier(8)\n"
        "def use():\n    begin.wait()\n    found.append(asyncio.TaskGroup and asyncio.run and asyncio.Runner)\n"
        "threads = [threading.Thread(target=use) for _ in range(8)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "assert len(found) == 8 and len(set(found)) == 1"
    )
