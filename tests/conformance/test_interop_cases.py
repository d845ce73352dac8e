# SPDX-License-Identifier: Apache-2.0
"""gRPC's own interoperability cases, by clients in Go, Java and Node, on both fronts, in plain text and over TLS."""

import subprocess
from pathlib import Path

import pytest

from libs.runtime.settings import ServerConfig
from tests.conformance import tools
from tests.conformance.interop_server import serving

CASES = (
    *("empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream"),
    *("timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response"),
    *("status_code_and_message", "special_status_message", "unimplemented_method", "unimplemented_service"),
)
"""All that clients share but custom_metadata, compression of single messages and accounts in the cloud: no handler of
ours sends metadata of its own before its answer."""

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("front", ["http2", "grpcio"])]


@pytest.fixture(scope="module")
def key_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A key and its certificate, signed by itself, for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    files = {"tls_key_file": folder / "key.pem", "tls_certificate_file": folder / "certificate.pem"}
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", *map(str, files.values())]
    made.insert(-1, "-out")
    subprocess.run(made, check=True, capture_output=True)
    return files


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
async def test_go(front: str, has_tls: bool, tmp_path: Path, key_files: dict[str, Path]) -> None:
    """Each case of the client for Go passes."""
    program, keys = tools.go_tool(tools.GO_CLIENT), key_files if has_tls else {}
    async with serving(tmp_path, ServerConfig(port=0, front=front, **keys)) as port:  # type: ignore[arg-type]
        command = [program, "--server_host=localhost", f"--server_port={port}", f"--use_tls={str(has_tls).lower()}"]
        command += ["--use_test_ca=true", f"--ca_file={key_files['tls_certificate_file']}"]
        command += ["--server_host_override=localhost"]
        for case in CASES:
            await tools.output_of([*command, f"--test_case={case}"])


async def test_java(front: str, tmp_path: Path) -> None:
    """Each case of the client for Java passes."""
    client = tools.java_client()
    async with serving(tmp_path, ServerConfig(port=0, front=front)) as port:  # type: ignore[arg-type]
        for case in CASES:
            flags = ["--server_host=localhost", f"--server_port={port}", "--use_tls=false", f"--test_case={case}"]
            await tools.output_of([*client, *flags])


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
async def test_node(front: str, has_tls: bool, tmp_path: Path, key_files: dict[str, Path]) -> None:
    """Each case of grpc-js passes."""
    client, keys = tools.node_client(), key_files if has_tls else {}
    async with serving(tmp_path, ServerConfig(port=0, front=front, **keys)) as port:  # type: ignore[arg-type]
        authorities = [str(key_files["tls_certificate_file"])] if has_tls else []
        printed = await tools.output_of([*client, f"localhost:{port}", *authorities])
    assert printed.count(": passed") == len(CASES) - 2  # a client made from a proto calls nothing that is not in it
