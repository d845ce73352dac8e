# SPDX-License-Identifier: Apache-2.0
"""Network: machines with addresses of their own on a bridge, whose links are cut, lossy or slow.

Each machine is a network namespace with an end of a veth pair; the other end is on a bridge in the namespace of the
calling process, which is a machine too (HARNESS). Packets are dropped where they arrive (nft), so a cut may be one-way;
a slow link is a token bucket (tbf), whose queue also delays. Invariants: no process outside sees any of it:
`enter_own_network` gives the process, and the processes that it starts, namespaces that end with the last of them.
Needs root, iproute2 and nftables; `reason_not_to_run` tells. Blocks.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.crash.fault.small_disk import enter_own_mounts

CLONE_NEWNET = 0x40000000  # linux/sched.h
PROGRAMS = ("ip", "tc", "nft", "nsenter", "setpriv")
PACKAGES = "iproute2 nftables util-linux"
NAMES_DIRECTORY = Path("/run/netns")
BRIDGE = "reput"
HARNESS = "harness"
"""The machine of the calling process."""
SUBNET = "10.77.0"
CHAIN = "table ip rounds { chain arriving { type filter hook input priority 0; policy accept; }; }"


def enter_own_network() -> None:
    """Give this process, and the processes that it will start, a network and mounts of their own. Raises OSError."""
    enter_own_mounts()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    NAMES_DIRECTORY.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "reput-names", str(NAMES_DIRECTORY))


def reason_not_to_run() -> str:
    """Why no network can be made here; empty if it can. Tried in a process of its own."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install -y {PACKAGES}"
    program = (
        "from tests.crash.rounds import network as n; n.enter_own_network()\n"
        "one = n.Network(('a',)); one.build(); one.cut(n.HARNESS, 'a'); one.lose('a', 10); one.slow('a', 1000)\n"
        "one.heal(); one.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return f"no network can be made: {done.stderr.strip().splitlines()[-1]}" if done.returncode else ""


class Network:
    """The network, see the module. `names` are the names of the machines. A process has a single network at a time."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._addresses = {HARNESS: f"{SUBNET}.1"} | {name: f"{SUBNET}.{n}" for n, name in enumerate(names, 11)}

    def address(self, name: str) -> str:
        """Where a machine is reached."""
        return self._addresses[name]

    def path(self, name: str) -> str:
        """The file of a machine's namespace."""
        return str(NAMES_DIRECTORY / name)

    def within(self, name: str) -> tuple[str, ...]:
        """The beginning of a command that is to run on a machine, and not longer than this process does."""
        inside = ("nsenter", f"--net={self.path(name)}") if name != HARNESS else ()
        return ("setpriv", "--pdeathsig", "KILL", *inside)

    def build(self) -> None:
        """Make all machines and their links."""
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{self.address(HARNESS)}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for name in self.names:
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"to-{name}", "master", BRIDGE, "up")
            _run("ip", "-n", name, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run("ip", "-n", name, "link", "set", device, "up")
        for name in (HARNESS, *self.names):
            self._filter(name, CHAIN)

    def cut(self, source: str, target: str) -> None:
        """From now on no packet of a machine arrives at another machine."""
        self._filter(target, f"add rule ip rounds arriving ip saddr {self.address(source)} drop")

    def lose(self, target: str, percent: int) -> None:
        """From now on this share of the packets to a machine does not arrive."""
        self._filter(target, f'add rule ip rounds arriving iifname "eth0" numgen random mod 100 < {percent} drop')

    def slow(self, source: str, kbit_per_s: int) -> None:
        """From now on a machine sends no faster than this, and waiting packets are queued for up to half a second."""
        bucket = ("rate", f"{kbit_per_s}kbit", "burst", "16kb", "latency", "500ms")
        _run("tc", "-n", source, "qdisc", "replace", "dev", "eth0", "root", "tbf", *bucket)

    def heal(self) -> None:
        """All links are as they were made."""
        for name in (HARNESS, *self.names):
            self._filter(name, "flush chain ip rounds arriving")
        for name in self.names:
            subprocess.run(("tc", "-n", name, "qdisc", "del", "dev", "eth0", "root"), capture_output=True, check=False)

    def close(self) -> None:
        """Take it apart, as far as it was made. Processes on its machines have ended by now."""
        links = [("link", "del", f"to-{name}") for name in self.names]  # at once, which a namespace does not go
        for command in (*links, *(("netns", "del", name) for name in self.names), ("link", "del", BRIDGE)):
            subprocess.run(("ip", *command), capture_output=True, check=False)
        subprocess.run(("nft", "delete", "table", "ip", "rounds"), capture_output=True, check=False)

    def _filter(self, name: str, command: str) -> None:
        _run(*self.within(name), "nft", command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
