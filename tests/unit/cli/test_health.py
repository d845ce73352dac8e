# SPDX-License-Identifier: Apache-2.0
"""`reput health`: a server that gives no answer is shown with the reason."""

import socket
import time

import grpc
from grpc.aio import AioRpcError, Metadata
from reput_client import Options

from cli.commands.state.health import UNREACHABLE, health_of, reason_of


def test_the_reason_is_one_line() -> None:
    """gRPC's text about a failed handshake, which may have several lines, follows the code in a single line."""
    error = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "handshake failed:\n certificate required")
    assert reason_of(error) == "UNAVAILABLE: handshake failed: certificate required"
    assert reason_of(AioRpcError(grpc.StatusCode.UNIMPLEMENTED, Metadata(), Metadata())) == "UNIMPLEMENTED"


def test_a_port_without_a_process_is_told() -> None:
    """The command reports a port without a process on this machine without a call."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    assert health_of(Options(), target, time.monotonic()) == (UNREACHABLE, "no process listens there")
