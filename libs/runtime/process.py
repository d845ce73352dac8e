# SPDX-License-Identifier: Apache-2.0
"""The process shell: runs a service from its command line to its exit code.

Order: check the interpreter, read the configuration, set up memory and telemetry, bind the port, open the service,
serve, notify systemd, wait for SIGTERM, SIGINT or a failure, refuse new calls, drain, stop the server, close the
service.
Invariants: when the start fails, a single line on standard error gives the reason, without a traceback. The service is
closed on every way out, except when the process dies.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from libs.formats.errors import FormatError, NewerVersion
from libs.machine import failpoints
from libs.machine.clock import ClockWatch
from libs.machine.errors import StoreLocked
from libs.machine.machine import Machine
from libs.runtime.config import Field, Loaded, environment_name, fields_of, flag_name, load
from libs.runtime.errors import ConfigError, PortInUse, StartError
from libs.runtime.peer.connection import Connection, Peer
from libs.runtime.reload import Reload
from libs.runtime.settings import ListenConfig, PeerConfig, ServerConfig, TelemetryConfig
from libs.runtime.trust.callers import service_token_of
from libs.runtime.trust.exposure import exposed
from libs.runtime.version import VERSION
from libs.runtime.watch import faults, malloc
from libs.runtime.watch.collector import Collector
from libs.runtime.watch.identity import Certificates
from libs.runtime.watch.logs import is_console
from libs.runtime.watch.loop_watch import LoopWatch
from libs.runtime.watch.telemetry import Telemetry, set_up
from libs.segments.errors import StoreError, SyncFailed

_log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 60.0
"""Time limit for closing, syncs included. Then the process ends as in a crash, and the next start recovers."""

TOLD = frozenset({"listen_host", "data_dir", "role", "front"})
"""The settings that the line of a start shows."""

HELP_FLAGS = frozenset({"-h", "--help"})
"""The flags that print the help, which is made for them alone."""

ALIVE_SHARE = 3
"""Number of notices of life within the time that systemd waits. So a notice may come late."""


class ExitCode(IntEnum):
    """The exit code of the process."""

    CLEAN = 0
    FAILURE = 1
    USAGE = 2
    SEALED = 3
    ADDRESS_IN_USE = 4
    STORE_LOCKED = 5


EXIT_CODES: Mapping[type[BaseException], ExitCode] = {
    ConfigError: ExitCode.USAGE,
    SyncFailed: ExitCode.SEALED,
    PortInUse: ExitCode.ADDRESS_IN_USE,
    StoreLocked: ExitCode.STORE_LOCKED,
    NewerVersion: ExitCode.USAGE,
}
"""Errors with their own exit code; all others give FAILURE."""

EXPECTED_ERRORS = (StartError, StoreError, FormatError, NewerVersion, OSError)
"""Errors of the environment: their text is enough. Any other error is a bug and is logged with its traceback."""


class ServiceSettings(Protocol):
    """The part of a service's settings that the process needs."""

    @property
    def server(self) -> ListenConfig:
        """The settings of the server."""
        ...

    @property
    def telemetry(self) -> TelemetryConfig:
        """The telemetry of the process: its reports and their targets."""
        ...


class Server(Protocol):
    """The server of a service, such as GrpcServer. It answers from `start` on, and serves from `admit` on."""

    @property
    def port(self) -> int:
        """The port on which it listens."""
        ...

    @property
    def is_healthy(self) -> bool:
        """Whether it tells others that it serves. From any thread."""
        ...

    async def start(self) -> None:
        """Listen and answer. Raises StartError."""
        ...

    def admit(self) -> None:
        """Accept calls."""
        ...

    async def set_healthy(self) -> None:
        """Tell others that it serves."""
        ...

    async def drain(self) -> None:
        """Refuse new calls. Running calls continue."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Stop listening. Calls that still run after the grace are cancelled."""
        ...


class Service(Protocol):
    """The service that a bootstrap builds."""

    @property
    def server(self) -> Server:
        """Its server."""
        ...

    @property
    def live(self) -> Collection[str]:
        """The settings that `reload` can change while the service runs."""
        ...

    def reload(self, settings: Any) -> None:
        """Take the live settings of these settings. All others are as they were. Must not fail."""
        ...

    async def open(self) -> None:
        """Recover the store and start the loops. Meanwhile the server answers, with RECOVERING."""
        ...

    async def until_connected(self) -> None:
        """Return when the services that it needs have answered once. Health says SERVING from then on."""
        ...

    async def until_complete(self) -> None:
        """Return when the start is no reason any more to refuse calls. The process then notifies systemd."""
        ...

    async def drain(self) -> None:
        """End long polls and streams soon. New calls are refused already."""
        ...

    async def close(self) -> None:
        """Flush and close everything. Called once, after `open` succeeded, failed half-way or was cancelled.

        A thread that `open` started may still be at work when it was cancelled: leave the store as a crash would.
        """
        ...


S = TypeVar("S", bound=ServiceSettings)
V = TypeVar("V", bound=Service)


class Shell:
    """The interface of the process for its service."""

    def __init__(self, telemetry: Telemetry, machine: Machine | None = None) -> None:
        self.telemetry = telemetry
        self.machine = machine or Machine()
        self.clock_watch = ClockWatch(self.machine.clock)
        self.loop_watch = LoopWatch(each_second=self.clock_watch.look)
        telemetry.observe("loop", self.loop_watch.statistics)
        telemetry.observe("clock", self.clock_watch.statistics)
        self.error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

    def peer(
        self, name: str, config: PeerConfig, server: ServerConfig, *, reconnect_ms_max: int
    ) -> Callable[[str], Connection]:
        """Return a function that connects to an address of another service of the store. Both raise ConfigError."""
        peer = Peer(name=name, config=config, token=service_token_of(server))
        interceptors = self.telemetry.client_interceptors()
        return lambda target: peer.at(target).connect(interceptors=interceptors, reconnect_ms_max=reconnect_ms_max)

    def fail(self, error: BaseException) -> None:
        """End the process because the service can't continue. The first error gives the exit code. From any thread."""
        self._loop.call_soon_threadsafe(self._end, error)

    def stop(self) -> None:
        """End the process in an orderly way, as SIGTERM does. From the event loop."""
        self._ended.set()

    async def wait_ended(self) -> None:
        """Return when `stop` or `fail` was called."""
        await self._ended.wait()

    def _end(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self._ended.set()


def main(
    arguments: Sequence[str], *, section: str, settings_class: type[S], build: Callable[[S, Shell], Service]
) -> int:
    """Run a service until a signal, `Shell.stop` or `Shell.fail` ends it, and return the exit code.

    Arguments are `--config FILE` and a flag for each setting. Only this function reads the environment.
    """
    if not __debug__:
        return _end_with(f"reput {section}: assertions guard the store: do not run with python -O or PYTHONOPTIMIZE")
    read = functools.partial(
        parse, arguments, section=section, settings_class=settings_class, environment=dict(os.environ)
    )
    try:
        failpoints.arm_text(os.environ.get("REPUT_FAILPOINTS", ""))
        loaded = read()
    except (ConfigError, ValueError) as error:
        return _end_with(f"reput {section}: {error}")
    malloc.tune()
    raise_descriptor_limit()
    faults.watch(section, is_console=is_console(loaded.value.telemetry.log_format))
    import uvloop

    gc.freeze()  # what was loaded stays: no round has to visit it
    gc.enable()
    with malloc.giving_back():
        return uvloop.run(_run(section, loaded, read, build))


def parse(
    arguments: Sequence[str], *, section: str, settings_class: type[S], environment: Mapping[str, str]
) -> Loaded[S]:
    """Read command line, file and environment. Raises ConfigError. argparse exits for --help and unknown flags."""
    parser = argparse.ArgumentParser(prog=f"reput serve {section}", allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with a table for each service")
    groups = {True: parser.add_argument_group("basic settings"), False: parser.add_argument_group("advanced settings")}
    asks_help = not HELP_FLAGS.isdisjoint(arguments)
    for field in fields_of(settings_class):
        text = _help(field, section) if asks_help else None
        groups[field.is_basic].add_argument(flag_name(field.name), help=text, metavar="VALUE")
    flags = vars(parser.parse_args(arguments))
    file = flags.pop("config")
    return load(settings_class, section=section, file=file, environment=environment, flags=flags)


def _help(field: Field, section: str) -> str:
    """Return the text of a flag for argparse."""
    variable = environment_name(section, field.name)
    text = f"{field.description} Must be {field.expectation}; default {field.default}; also {variable}."
    return text.replace("%", "%%")


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit, because each connection needs a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.asynccontextmanager
async def running(build: Callable[[S, Shell], V], settings: S, machine: Machine | None = None) -> AsyncIterator[V]:
    """Run a service inside this process, for tests. It serves within the block and is stopped in order after it.

    An error that the service reports by `Shell.fail` is raised at the end of the block.
    """
    shell = Shell(Telemetry.off(), machine)
    service = build(settings, shell)
    try:
        async with _started(service, settings.server):
            await _open(service)
            with shell.loop_watch.running():
                async with _telling(service):
                    yield service
    finally:
        shell.telemetry.shutdown()
    if shell.error is not None:
        raise shell.error


async def _run(
    section: str, loaded: Loaded[S], read: Callable[[], Loaded[S]], build: Callable[[S, Shell], Service]
) -> int:
    telemetry: Telemetry | None = None
    settings = loaded.value
    try:
        telemetry = set_up(section, settings.telemetry, settings.server)
        shell = Shell(telemetry)
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signal_number, shell.stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _hang_up_early)
        found = exposed({setting.field.name: setting.value for setting in loaded.settings})
        for sentence in found:
            _log.warning(sentence)
        telemetry.add(Certificates(certificate_files(loaded)))
        service = build(settings, shell)
        telemetry.is_serving = lambda: service.server.is_healthy
        reload = Reload(loaded, read, service.live, service.reload)
        telemetry.observe("reload", reload.statistics)
        telemetry.settings = reload.document
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.run)
        async with saying_alive():
            await _serve(service, shell, loaded)
    except EXPECTED_ERRORS as error:
        return _end_with(f"reput {section}: {error}", _exit_code(error))
    except Exception as error:  # noqa: BLE001 - a bug: the log gets the traceback, the caller gets the exit code
        _log.exception("the service failed: %s", error)
        return ExitCode.FAILURE
    finally:
        if telemetry is not None:
            telemetry.shutdown()
    return ExitCode.CLEAN


def certificate_files(loaded: Loaded[Any]) -> list[tuple[str, Path]]:
    """Return the files of certificates that the settings name, by setting."""
    ends = ("tls_certificate_file", "tls_ca_file", "tls_client_ca_file")
    return [
        (setting.field.name, setting.value)
        for setting in loaded.settings
        if setting.field.name.endswith(ends) and isinstance(setting.value, Path)
    ]


def _hang_up_early() -> None:
    """Continue after a SIGHUP that comes before the service is built: its settings were read just now."""
    _log.info("SIGHUP: the service goes on, with the settings that it has just read")


async def _serve(service: Service, shell: Shell, loaded: Loaded[S]) -> None:
    """Start, wait for the end, stop. Raises the error that made the service fail."""
    collector = Collector()
    try:
        async with _started(service, loaded.value.server):
            opening = asyncio.ensure_future(_open(service, before_ready=collector.settle))
            ended = asyncio.ensure_future(shell.wait_ended())
            await asyncio.wait([opening, ended], return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
                _log.info("serving", extra={"fields": {"port": service.server.port, **about(loaded)}})
                async with _telling(service):
                    with shell.loop_watch.running(), collector.running():
                        await ended
            else:
                opening.cancel()
                await asyncio.wait([opening])
            _log.info("stopping")
    finally:
        if shell.error is not None:  # the first failure is raised, also if closing failed after it
            raise shell.error
    _log.info("stopped")


def about(loaded: Loaded[S]) -> dict[str, object]:
    """Return the fields of the start's log line beside the port: version, file, some settings, and all that differ.

    `settings` has the settings that differ from their defaults. Secrets are masked.
    """
    shown = {setting.field.name: str(setting.value) for setting in loaded.settings if setting.field.name in TOLD}
    if "data_dir" in shown:
        shown["data_dir"] = os.path.realpath(shown["data_dir"])
    changed = {
        setting.field.name: setting.shown_value
        for setting in loaded.settings
        if setting.value != setting.field.default and setting.field.name not in TOLD
    }
    return {"version": VERSION, "config": str(loaded.file or "no file"), **shown, "settings": changed}


async def _open(service: Service, *, before_ready: Callable[[], None] = lambda: None) -> None:
    await service.open()
    before_ready()
    service.server.admit()


@contextlib.asynccontextmanager
async def _telling(service: Service) -> AsyncIterator[None]:
    """Report the service's readiness within the block, as soon as it is ready."""
    telling = asyncio.create_task(_tell(service), name="readiness")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])


async def _tell(service: Service) -> None:
    await service.until_connected()
    await service.server.set_healthy()
    await service.until_complete()
    notify("READY=1")


def notify(text: str, *, wait_s: float = 1.0) -> None:
    """Send a notice such as `READY=1` by systemd's protocol, if NOTIFY_SOCKET is set.

    A notice that is not received within `wait_s` is lost.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice, contextlib.suppress(OSError):
            notice.settimeout(wait_s)
            notice.sendto(text.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


def alive_interval_s(environment: Mapping[str, str]) -> float | None:
    """Return the interval of the notices of life. None if systemd does not wait for them."""
    text, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not text.isdecimal() or int(text) == 0 or process != str(os.getpid()):
        return None
    return int(text) / 1e6 / ALIVE_SHARE


@contextlib.asynccontextmanager
async def saying_alive() -> AsyncIterator[None]:
    """Send notices of life from the running loop, within the block. A blocked loop sends none.

    systemd then ends the process (WatchdogSec), and starts it again.
    """
    interval_s = alive_interval_s(os.environ)
    if interval_s is None:
        yield
        return

    async def say() -> None:
        while True:
            notify("WATCHDOG=1", wait_s=0)
            await asyncio.sleep(interval_s)

    saying = asyncio.create_task(say(), name="alive")
    try:
        yield
    finally:
        saying.cancel()
        await asyncio.wait([saying])


@contextlib.asynccontextmanager
async def _started(service: Service, config: ListenConfig) -> AsyncIterator[None]:
    """Listen within the block. After it refuse, drain, stop and close, each even if a step before it failed."""
    grace_s = config.drain_timeout_ms / 1000
    try:
        await service.server.start()
    except StartError:
        await service.server.stop(0)
        raise
    async with contextlib.AsyncExitStack() as steps:
        steps.push_async_callback(_close, service)
        steps.push_async_callback(service.server.stop, grace_s)
        steps.push_async_callback(_drain, service, grace_s)
        yield


async def _drain(service: Service, grace_s: float) -> None:
    await service.server.drain()
    try:
        async with asyncio.timeout(grace_s):
            await service.drain()
    except TimeoutError:
        _log.warning("draining took longer than drain_timeout_s = %g, the remaining calls are cancelled", grace_s)


async def _close(service: Service) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await service.close()
    except TimeoutError:
        raise TimeoutError(f"closing the store took longer than {CLOSE_TIMEOUT_S:.0f} s") from None


def _exit_code(error: BaseException) -> ExitCode:
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), ExitCode.FAILURE)


def _end_with(line: str, code: ExitCode = ExitCode.USAGE) -> ExitCode:
    sys.stderr.write(line.replace("\n", " ") + "\n")
    return code
