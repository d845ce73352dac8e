# SPDX-License-Identifier: Apache-2.0
"""The part of a Kubernetes API that helm's `lookup` of a Secret needs."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MISSING = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@contextlib.contextmanager
def cluster(namespace: str, secrets: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """The address of an API that has these Secrets (data by name) and nothing else."""
    resource = {"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get"]}
    answers: dict[str, Any] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]},
    }
    for name, data in secrets.items():
        kind = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}}
        answers[f"/api/v1/namespaces/{namespace}/secrets/{name}"] = {**kind, "data": data}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.split("?")[0])
            body = json.dumps(found or MISSING).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
