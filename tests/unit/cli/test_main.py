# SPDX-License-Identifier: Apache-2.0
"""The command tree: the page about it is up to date, and every command offers JSON."""

import asyncio
import re
import shlex
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import free_ports
from cli.commands.typed.group import first_sentence
from cli.commands.up import console_token, listen_hosts, stop_at_signals
from cli.copies import Copy, chosen_ports, copies_of, shards_of, write_shards
from cli.document import PAGE, page
from cli.registry import COMMANDS, app, load, run
from cli.supervisor import Supervisor
from demo import cluster
from libs.runtime.version import VERSION
from libs.shards.shards_file import loads
from tests.support import surroundings
from tests.support.reput_up import run_here

WITHOUT_JSON = {
    "serve commitlog",
    "serve indexer",
    "serve janitor",
    "serve delivery",
    "serve gateway",
    "serve console",
    "console",
    "mcp",
}


def commands() -> dict[str, Any]:
    """All commands that do something, by path."""
    found: dict[str, Any] = {}

    def walk(command: Any, path: str) -> None:
        children = getattr(command, "commands", None)
        if children is None:
            found[path] = command
            return
        for name, child in children.items():
            walk(child, f"{path} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


def test_page_is_up_to_date() -> None:
    """docs/cli.md is equal to the page that is made from the commands."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m cli.document"


def test_json_everywhere(subtests: pytest.Subtests) -> None:
    """Each command has --json."""
    for path, command in commands().items():
        if path not in WITHOUT_JSON:
            with subtests.test(path):
                assert any("--json" in parameter.opts for parameter in command.params)


def test_every_command_has_help(subtests: pytest.Subtests) -> None:
    """Each command and each of its options has a help text."""
    for path, command in commands().items():
        with subtests.test(path):
            assert command.help
            for parameter in command.params:
                if parameter.name != "context":
                    assert parameter.help, parameter.name


def test_the_table_says_what_the_commands_say(subtests: pytest.Subtests) -> None:
    """`reput --help` prints the table's lines, without importing the commands."""
    for name, entry in COMMANDS.items():
        with subtests.test(name):
            assert entry.line == first_sentence(load(name).help)


def test_every_command_shows_an_example(subtests: pytest.Subtests) -> None:
    """Each command has a line to copy, with the command's own name and existing options."""
    for path, command in commands().items():
        if path not in WITHOUT_JSON:
            with subtests.test(path):
                _check_example(path, command)


def _check_example(path: str, command: Any) -> None:
    (example,) = (line for line in command.help.splitlines() if line.startswith("Example: "))
    words = shlex.split(example.removeprefix("Example: "))
    assert words[0] == "reput"
    assert f" {path} " in f" {' '.join(words)} "
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    after = words[words.index(path.rsplit(maxsplit=1)[-1]) :]
    assert {word for word in after if re.fullmatch("-[a-z]|--[a-z-]+", word)} <= options


@pytest.mark.parametrize("arguments", [("-h",), ("--help",), ()])
def test_help(arguments: tuple[str, ...]) -> None:
    """Each command is listed with a whole sentence."""
    result = run_here(*arguments)
    text = " ".join((result.output + result.errors).split())
    assert all(entry.line in text for entry in COMMANDS.values())
    assert "..." not in text.replace("[ARGS]...", "")


def test_short_help_everywhere() -> None:
    """`-h` is `--help` for groups and commands, too."""
    for arguments in (("topics",), ("topics", "list"), ("put",)):
        short, long = run_here(*arguments, "-h"), run_here(*arguments, "--help")
        assert (short.code, short.output) == (0, long.output)
        assert "Usage: reput" in short.output


def test_version() -> None:
    """--version works in front of a command, where users try it first."""
    result = run_here("--version")
    assert (result.code, result.output) == (0, f"reput {VERSION}\n")


def test_typos() -> None:
    """A misspelt command gets the nearest known name, in groups as well."""
    result = run_here("tpoics")
    assert (result.code, result.output) == (2, "")
    assert "No such command 'tpoics'. Did you mean 'topics'?" in result.errors
    assert "Did you mean 'list'?" in run_here("topics", "lits").errors


@pytest.mark.parametrize("arguments", [("--json", "status"), ("--timeout=5", "--json", "status"), ("topics", "--json")])
def test_json_in_front_of_the_command(arguments: tuple[str, ...]) -> None:
    """--json in front of the command is refused, with its right place."""
    result = run_here(*arguments)
    assert (result.code, result.output) == (2, "")
    assert "--json stands behind the command" in result.errors


def test_completion() -> None:
    """Shells get the names of commands and options."""
    found = run_here(extra={"_REPUT_COMPLETE": "complete_bash", "COMP_WORDS": "reput topi", "COMP_CWORD": "1"})
    assert found.output.split() == ["topics"]
    found = run_here(extra={"_REPUT_COMPLETE": "complete_bash", "COMP_WORDS": "reput status --w", "COMP_CWORD": "2"})
    assert found.output.split() == ["--watch"]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (FileNotFoundError(2, "No such file", "x"), 1, "error: FILE: x: No such file\n"),
        (OSError(28, "No space"), 1, "error: SYSTEM: [Errno 28] No space\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_errors_of_the_world(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error of the system is a line and an exit code, and a reader of the output that left is no error."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("cli.registry.app", fail)
    monkeypatch.setattr("cli.registry.forget_output", lambda: None)
    assert run() == code
    assert capfd.readouterr().err == text


def test_up_tells_services_where_the_others_are(tmp_path) -> None:
    """Each child listens where the others look for it, over the same directory."""
    ports = chosen_ports({"commitlog": 0, "indexer": 0, "janitor": 7103})
    assert ports["janitor"] == 7103
    assert len(set(ports.values())) == 3
    copy = Copy(tmp_path, ports, dict.fromkeys(ports, "127.0.0.1"))
    commitlog, indexer, janitor = copy.children(tmp_path / "reput.toml", metrics=False)
    for child in (commitlog, indexer, janitor):
        flags = dict(zip(child.flags[::2], child.flags[1::2], strict=True))
        assert child.target == f"127.0.0.1:{flags['--port']}"
        assert (flags["--data-dir"], flags["--metrics-port"]) == (str(tmp_path), "0")
        assert flags.get("--commitlog-target", commitlog.target) == commitlog.target
        assert flags.get("--indexer-target", indexer.target) == indexer.target
    assert "--indexer-target" in janitor.flags


def test_a_chosen_port_is_held_until_its_service_starts() -> None:
    """No other process can take it meanwhile."""
    port = chosen_ports({"commitlog": 0})["commitlog"]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        free_ports.let_go(port)
        other.bind(("127.0.0.1", port))
    free_ports.let_go(port)


@pytest.mark.parametrize("chosen", [free_ports.FREE_PORTS, cluster.PORTS], ids=["reput up", "demo"])
def test_ports_of_tests_are_their_own(chosen: tuple[int, int]) -> None:
    """A port that a test has reserved is chosen by no store beside it, which knows of no reservations."""
    assert surroundings.PORTS[1] <= chosen[0]


@pytest.mark.parametrize("etcd", [None, "e:2379"])
def test_ports_and_roles_of_copies(tmp_path: Path, etcd: str | None) -> None:
    """The ports of copies are ten apart, and each copy has its own directory.

    The first log leads, or with etcd each log may lead.
    """
    ports = {"commitlog": 7101, "indexer": 7102, "janitor": 7103}
    copies = copies_of(tmp_path, ports, etcd, 3, listen_hosts(ports, None, None))
    assert [copy.target("commitlog") for copy in copies] == [f"127.0.0.1:{port}" for port in (7101, 7111, 7121)]
    assert [copy.data_dir.name for copy in copies] == ["a", "b", "c"]
    logs = [copy.children(None, metrics=True)[0] for copy in copies]
    assert [("--leader-target" in log.flags, "--coordinator" in log.flags) for log in logs] == (
        [(False, True)] * 3 if etcd else [(False, False), (True, False), (True, False)]
    )
    metrics = [dict(zip(log.flags[::2], log.flags[1::2], strict=True)).get("--metrics-port") for log in logs]
    assert metrics == [None, "7211", "7221"]
    assert len({log.label for log in logs}) == 3


@pytest.mark.parametrize("replicas", [1, 3])
def test_copies_of_shards(tmp_path: Path, replicas: int) -> None:
    """Each shard has copies of its own with a leader among them, and the file names all copies of each shard."""
    ports = {"commitlog": 7101, "indexer": 7102, "janitor": 7103, "delivery": 7104}
    hosts = listen_hosts(ports, None, None)
    copies = shards_of(tmp_path, ports, 2, hosts, replicas=replicas, etcd=None)
    assert len({copy.data_dir for copy in copies}) == len({copy.label for copy in copies}) == 2 * replicas
    assert len({target for copy in copies for target in map(copy.target, ports)}) == 8 * replicas
    shards = loads(write_shards(copies, tmp_path).read_text())
    for name, shard in shards.items():
        own = [copy for copy in copies if copy.shard == name]
        assert shard.commitlog == ",".join(copy.target("commitlog") for copy in own)
        flags = [copy.children(None, metrics=True)[0].flags for copy in own]
        leaders = [dict(zip(one[::2], one[1::2], strict=True)).get("--leader-target") for one in flags]
        assert leaders == [None, *[own[0].target("commitlog")] * (replicas - 1)]
        assert all("--shards-file" in copy.children(None, metrics=True)[3].flags for copy in own)
    assert list(shards) == ["a", "b"]


def test_too_many_copies_are_refused() -> None:
    """Their ports would be those of metrics. The error names the numbers and the limit, and nothing is started."""
    refused = run_here("up", "--shards", "4", "--replicas", "3")
    assert refused.code == 2
    assert "4 shards with 3 copies each are 12: at most 10 in all" in " ".join(refused.errors.split())


def test_the_console_of_up_gets_a_token_where_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """On loopback, beside services that ask nobody for a token, it gets this user's; else its settings decide."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    token = tmp_path / "state" / "reput" / "token"
    names = ("commitlog", "indexer")
    assert console_token("127.0.0.1", names, None) == ["--store-token-file", str(token)]
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    file = tmp_path / "reput.toml"
    for table, setting in (
        ("indexer", "token_file"), ("commitlog", "operator_token_file"), ("indexer", "rights_file"),
        ("commitlog", "tls_client_ca_file"), ("console", "store_token_file"),
    ):  # fmt: skip
        with subtests.test(f"{table}.{setting}"), monkeypatch.context() as variables:
            file.write_text(f'[{table}]\n{setting} = "x"\n')
            assert console_token("127.0.0.1", names, file) == []
            variables.setenv(f"REPUT_{table.upper()}_{setting.upper()}", "x")
            assert console_token("127.0.0.1", names, None) == []
    assert console_token("0.0.0.0", names, None) == []
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/no-such")
    assert console_token("127.0.0.1", names, None) == []


def test_up_listens_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag takes precedence over a service's variable, and the variable over the service's table in the file.

    Without a setting the service listens on loopback.
    """
    file = tmp_path / "reput.toml"
    file.write_text('[commitlog]\nlisten_host = "192.0.2.1"\n[indexer]\nlisten_host = "192.0.2.1"\n')
    monkeypatch.setenv("REPUT_INDEXER_LISTEN_HOST", "0.0.0.0")
    names = ("commitlog", "indexer", "janitor")
    found = listen_hosts(names, None, file)
    assert found == {"commitlog": "192.0.2.1", "indexer": "0.0.0.0", "janitor": "127.0.0.1"}
    assert listen_hosts(names, "::", file) == dict.fromkeys(names, "::")
    copy = Copy(tmp_path, dict.fromkeys(names, 7101), found)
    assert [copy.target(name) for name in names] == ["192.0.2.1:7101", "127.0.0.1:7101", "127.0.0.1:7101"]
    assert Copy(tmp_path, {"commitlog": 1}, {"commitlog": "::"}).target("commitlog") == "[::1]:1"
    hosts = [child.flags[child.flags.index("--listen-host") + 1] for child in copy.children(file, metrics=True)]
    assert hosts == list(found.values())


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
async def test_up_below_nohup_outlives_its_terminal(before: signal.Handlers) -> None:
    """A hang-up stops `reput up`, unless the program that started it has the signal ignored."""
    former = signal.signal(signal.SIGHUP, before)
    try:
        stop_at_signals(Supervisor([], print))
        is_handled = signal.getsignal(signal.SIGHUP) not in (signal.SIG_IGN, signal.SIG_DFL)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(signal.SIGHUP, former)
    assert is_handled is (before is signal.SIG_DFL)
