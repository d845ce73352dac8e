# SPDX-License-Identifier: Apache-2.0
"""The common part of the peers on Java: a single Maven build for all of them, and servers as JVM processes.

The build goes to build/bench/java/MODULE/{classes,lib} and is made anew when the pom files or the sources differ from
the files that it was made of. A JVM is run with a class path; there are no assembled archives.
"""

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.peer import PeerMissing

SOURCES = Path(__file__).parent / "java"
CLIENT = Path(__file__).resolve().parents[2] / "clients" / "java"
BUILD = Path(__file__).resolve().parents[2] / "build" / "bench" / "java"
JAVA_RELEASE_MIN = 17
START_TIMEOUT_S = 180  # a JVM on a machine that is busy with something else
STOP_TIMEOUT_S = 5  # then it is killed: nothing of it is kept, and a broker takes its time

SERVER_HEAP = ("-Xms2g", "-Xmx2g")
"""The same for every broker. It is enough for all of them: the data is in the page cache, not on the heap."""
CLUSTER_HEAP = ("-Xms1g", "-Xmx1g")
"""The same for every broker of three on the same machine."""
LOAD_JVM = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC")
"""Load generators are short of neither memory nor pauses: batches become garbage at the rate of the stream."""

_POM = "{http://maven.apache.org/POM/4.0.0}"


def build() -> None:
    """Compile and fetch the missing parts.

    Raises PeerMissing without Maven or a JDK that is new enough, or when Maven Central does not answer.
    """
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise PeerMissing(f"{', '.join(missing)} not found: install a JDK {JAVA_RELEASE_MIN} and Maven")
    if java_release() < JAVA_RELEASE_MIN:
        raise PeerMissing(f"Java {java_release()} is too old: install a JDK {JAVA_RELEASE_MIN}")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made_of = BUILD / "made_of"
        digest = _digest()
        if made_of.exists() and made_of.read_text() == digest:
            return
        for part in BUILD.iterdir():
            if part.is_dir():
                shutil.rmtree(part)
        done = subprocess.run(
            ["mvn", "--quiet", "--batch-mode", "-DskipTests", "package"],
            cwd=SOURCES,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            error = f"Maven can't build {SOURCES}:\n{done.stdout[-3000:]}"
            raise PeerMissing(error) if "resolve" in done.stdout else RuntimeError(error)
        made_of.write_text(digest)


def release(name: str) -> str:
    """Return a release that the pom names, such as that of "kafka"."""
    properties = ElementTree.parse(SOURCES / "pom.xml").getroot().find(f"{_POM}properties")
    assert properties is not None
    text = properties.findtext(f"{_POM}{name}.version")
    assert text is not None, name
    return text


def java_version() -> str:
    """Return the JVM's version, such as 17.0.15."""
    done = subprocess.run(["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True)
    return next(line.split("=")[1].strip() for line in done.stderr.splitlines() if "java.version =" in line)


def java_release() -> int:
    """Return the JVM's major number. Java 8 and before call themselves 1.x, which is too old all the same."""
    return int(java_version().split(".")[0])


def command(module: str, main_class: str, flags: Sequence[str]) -> list[str]:
    """Return the command line of a main class of a module, without its arguments."""
    home = BUILD / module
    return ["java", *flags, "-cp", f"{home / 'classes'}{os.pathsep}{home / 'lib'}/*", main_class]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a server is started. It is ready when its log has the words that say so."""

    words: Sequence[str]
    log_path: Path
    ready: str
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def servers(*starts: Start) -> Iterator[tuple[int, ...]]:
    """Run servers that may need each other, yield their process ids when all are ready, and end them afterwards.

    Raises RuntimeError with the end of its log when a server does not become ready.
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(start)) for start in starts]
        for process, start in zip(processes, starts, strict=True):
            _wait_ready(process, start.log_path, start.ready)
        yield tuple(process.pid for process in processes)


@contextmanager
def _process(start: Start) -> Iterator[subprocess.Popen[bytes]]:
    with start.log_path.open("wb") as log:
        process = subprocess.Popen(
            start.words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **start.environment}
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(*, below: int = 0) -> int:
    """Return a free port of 127.0.0.1. The port that lies `below` lower is free, too, if asked for."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = int(found.getsockname()[1])
            if below == 0:
                return port
            try:
                socket.create_server(("127.0.0.1", port - below)).close()
            except OSError:
                continue
            return port


def _wait_ready(process: subprocess.Popen[bytes], log_path: Path, ready: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while ready not in log_path.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"{log_path.name} did not start:\n{log_path.read_text(errors='replace')[-3000:]}")
        time.sleep(0.05)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in (SOURCES, CLIENT / "src") for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(CLIENT.parents[1])).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
