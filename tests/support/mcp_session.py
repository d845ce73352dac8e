# SPDX-License-Identifier: Apache-2.0
"""`reput mcp` as a process, with the client of the MCP SDK, and a bare client that sees each line."""

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client

from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, Store, environment

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = "2025-11-25"


@contextlib.asynccontextmanager
async def session_of(
    store: Store, log: Path, *flags: str, before: tuple[str, ...] = ()
) -> AsyncIterator[ClientSession]:
    """A session with a server of this store. Its standard error goes to `log`."""
    server = StdioServerParameters(
        command=sys.executable,
        args=[*REPUT[1:], *before, "mcp", *flags],
        env=environment(store.client_environment()),
        cwd=REPOSITORY,
    )
    with log.open("w") as errors:
        async with stdio_client(server, errlog=errors) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def ask(session: ClientSession, tool: str, **arguments: Any) -> Any:
    """Return the answer of a tool, which must be one."""
    result = await session.call_tool(tool, arguments)
    (content,) = result.content
    assert not result.is_error, content
    assert content.type == "text"
    return json.loads(content.text)


class BareClient:
    """Speaks the protocol line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._number = process, 0
        self.request(
            "initialize",
            {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
        )
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message: Any) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """Read a line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def request(self, method: str, params: Any) -> tuple[Any, int]:
        """Return the answer of a request, and the bytes of its line."""
        self._number += 1
        self.write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while (answer := json.loads(line := self.line())).get("id") != self._number:
            assert answer["jsonrpc"] == "2.0"
        return answer, len(line.encode())

    def call(self, tool: str, **arguments: Any) -> tuple[Any, int]:
        """Return the answer of a tool, and the bytes of its line."""
        answer, size_bytes = self.request("tools/call", {"name": tool, "arguments": arguments})
        return answer["result"], size_bytes


@contextlib.contextmanager
def bare_client(store: Store, *flags: str) -> Iterator[BareClient]:
    """A client whose server ends with its input, with exit code 0 and without a traceback."""
    command = [*REPUT, "mcp", *flags]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(store.client_environment()),
        cwd=REPOSITORY,
    ) as process:
        try:
            yield BareClient(process)
            output, errors = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, output) == (0, ""), errors
            assert "Traceback" not in errors, errors
        finally:
            if process.poll() is None:
                process.kill()
