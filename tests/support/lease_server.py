# SPDX-License-Identifier: Apache-2.0
"""LeaseServer: the part of Kubernetes' API server that a Lease and a pod's label need, and its possible faults.

It treats versions, uids, selectors, watches and errors as kube-apiserver does. The tests of the door run against
both.
"""

import asyncio
import contextlib
import copy
import enum
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import h11

from tests.support.surroundings import free_port

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
NAMESPACE = "shop"
TOKEN = "s3cret"
READ_BYTES = 1 << 16

KUBE_CONFIG = """\
apiVersion: v1
kind: Config
current-context: one
contexts: [{{name: one, context: {{cluster: one, user: one, namespace: {namespace}}}}}]
clusters: [{{name: one, cluster: {cluster}}}]
users: [{{name: one, user: {user}}}]
"""


class Fault(enum.Enum):
    """The fate of a request."""

    DROPPED = enum.auto()
    """The request never arrives."""
    ANSWER_LOST = enum.auto()
    """The request is carried out, and the caller gets no answer."""
    SILENT = enum.auto()
    """The request is neither carried out nor answered."""
    LATE = enum.auto()
    """The request is carried out when `let_go` is set, and not answered before."""


class Refusal(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str = "told by the test") -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class LeaseServer:
    """The server. When it is started again, it has the same port and the same data."""

    def __init__(self) -> None:
        self.port = free_port()
        self.faults: list[tuple[str, Fault | Refusal]] = []
        """A verb, and the fate of the next request with it."""
        self.requests: list[tuple[str, str]] = []
        """Verb and path of each request."""
        self.token = TOKEN
        self.let_go = asyncio.Event()
        self.pods: dict[str, dict[str, Any]] = {}
        self._version = 100
        self._first_kept = 0
        self._events: list[tuple[int, str, dict[str, Any]]] = []
        self._leases: dict[str, dict[str, Any]] = {}
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def config_file(self, directory: Path) -> Path:
        """Write a file as kubectl reads it, with the token in a separate file."""
        (directory / "token").write_text(TOKEN)
        file = directory / "kubeconfig"
        cluster, user = f"{{server: {self.url}}}", f"{{tokenFile: {directory / 'token'}}}"
        file.write_text(KUBE_CONFIG.format(namespace=NAMESPACE, cluster=cluster, user=user))
        return file

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """End all connections, and stop listening."""
        if self._server is not None:
            self._server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            self._server = None

    # Changes that people make to the object.

    @property
    def lease(self) -> dict[str, Any]:
        """The only Lease."""
        (found,) = self._leases.values()
        return copy.deepcopy(found)

    async def edit(self, **notes: str | None) -> None:
        """Change annotations, by their names behind the slash. None removes an annotation."""
        lease = self.lease
        for name, text in notes.items():
            key = f"reput.dev/{name.replace('_', '-')}"
            lease["metadata"]["annotations"].pop(key, None)
            if text is not None:
                lease["metadata"]["annotations"][key] = text
        await self._store("MODIFIED", lease)

    async def delete(self) -> None:
        """Delete the Lease."""
        await self._store("DELETED", self.lease)

    async def forget(self) -> None:
        """Drop old events, so that watches from before have to begin anew."""
        await self._store("MODIFIED", {"metadata": {"name": "another"}})
        self._first_kept = self._version

    # The store.

    async def _store(self, kind: str, lease: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        lease["metadata"]["resourceVersion"] = str(self._version)
        name = lease["metadata"]["name"]
        if kind == "DELETED":
            del self._leases[name]
        elif name != "another":
            self._leases[name] = lease
        self._events.append((self._version, kind, copy.deepcopy(lease)))
        async with self._news:
            self._news.notify_all()
        return lease

    def _list(self, name: str) -> dict[str, Any]:
        items = [lease for key, lease in self._leases.items() if key == name]
        return {"kind": "LeaseList", "metadata": {"resourceVersion": str(self._version)}, "items": items}

    async def _create(self, lease: dict[str, Any]) -> dict[str, Any]:
        meta = lease["metadata"]
        if meta["name"] in self._leases:
            raise Refusal(409, "AlreadyExists", f'leases "{meta["name"]}" already exists')
        if meta.get("resourceVersion"):
            raise Refusal(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        return await self._store("ADDED", {**lease, "metadata": {**meta, "uid": str(uuid.uuid4())}})

    async def _replace(self, name: str, lease: dict[str, Any]) -> dict[str, Any]:
        meta, there = lease["metadata"], self._leases.get(name)
        if meta.get("uid") and meta["uid"] != (there or {"metadata": {"uid": ""}})["metadata"]["uid"]:
            raise Refusal(409, "Conflict", "Precondition failed: UID in precondition is another one")
        if there is None:
            return await self._create({**lease, "metadata": {**meta, "resourceVersion": None}})
        if not meta.get("resourceVersion"):
            raise Refusal(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        if meta["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", "the object has been modified")
        if lease == there:
            return there
        return await self._store("MODIFIED", lease)

    async def _events_after(self, version: int, name: str) -> AsyncIterator[dict[str, Any]]:
        if version < self._first_kept:
            status = _status(Refusal(410, "Expired", f"too old resource version: {version} ({self._first_kept})"))
            yield {"type": "ERROR", "object": status}
            return
        while True:
            for at, kind, lease in self._events:
                if at > version and lease["metadata"]["name"] == name:
                    version = at
                    yield {"type": kind, "object": lease}
            async with self._news:
                await self._news.wait()

    # The wire.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = h11.Connection(h11.SERVER)
        with contextlib.suppress(asyncio.CancelledError, ConnectionError, h11.RemoteProtocolError):
            while await self._one(connection, reader, writer):
                connection.start_next_cycle()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self._connections.discard(task)

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request. Return whether a further request may come."""
        request, body = None, b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.ConnectionClosed):
                return False
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
        assert request is not None
        url = urlsplit(request.target.decode())
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        verb = "watch" if query.get("watch") == "true" else request.method.decode().lower()
        self.requests.append((verb, url.path))
        try:
            self._check(dict(request.headers))
            fault = self._fault(verb)
            if fault is Fault.DROPPED:
                return False
            if fault is Fault.SILENT:
                await asyncio.Event().wait()
            if fault is Fault.LATE:
                await self.let_go.wait()
            if verb == "watch":
                await self._stream(connection, writer, query)
            answer = await self._carry_out(verb, url.path, query, body)
            if fault is not None:
                return False
        except Refusal as refusal:
            await _answer(connection, writer, refusal.code, _status(refusal))
        else:
            await _answer(connection, writer, 200, answer)
        return True

    def _check(self, headers: dict[bytes, bytes]) -> None:
        if headers.get(b"authorization", b"").decode() != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _fault(self, verb: str) -> Fault | None:
        for index, (wanted, fault) in enumerate(self.faults):
            if wanted == verb:
                del self.faults[index]
                if isinstance(fault, Refusal):
                    raise fault
                return fault
        return None

    async def _carry_out(self, verb: str, path: str, query: dict[str, str], body: bytes) -> dict[str, Any]:
        room, _, name = path.rpartition("/")
        if verb == "get" and path == LEASES.format(NAMESPACE):
            return self._list(query["fieldSelector"].removeprefix("metadata.name="))
        if verb == "post" and path == LEASES.format(NAMESPACE):
            return await self._create(json.loads(body))
        if verb == "put" and room == LEASES.format(NAMESPACE):
            return await self._replace(name, json.loads(body))
        if verb == "patch" and room == f"/api/v1/namespaces/{NAMESPACE}/pods" and name in self.pods:
            labels = self.pods[name].setdefault("labels", {})
            labels.update(json.loads(body)["metadata"]["labels"])
            return {"metadata": {"name": name, "labels": labels}}
        raise Refusal(404, "NotFound", f"{path} not found")

    async def _stream(self, connection: h11.Connection, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:
        headers = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
        writer.write(connection.send(h11.Response(status_code=200, headers=headers)) or b"")
        name = query["fieldSelector"].removeprefix("metadata.name=")
        async for event in self._events_after(int(query["resourceVersion"]), name):
            writer.write(connection.send(h11.Data(json.dumps(event).encode() + b"\n")) or b"")
            await writer.drain()
        raise ConnectionError("the watch has ended")


def _status(refusal: Refusal) -> dict[str, Any]:
    told = {"code": refusal.code, "reason": refusal.reason, "message": str(refusal)}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **told}


async def _answer(connection: h11.Connection, writer: asyncio.StreamWriter, code: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(data)))]
    response = h11.Response(status_code=code, headers=headers)
    for event in (response, h11.Data(data), h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")
    await writer.drain()
