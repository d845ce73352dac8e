# SPDX-License-Identifier: Apache-2.0
"""gRPC over HTTP/2 in the event loop: bytes in, calls out; libnghttp2 does HTTP/2, and the rest is here.

From below; each module may use the modules above it in this list:

limits       ConnectionLimits: how much callers may use, as settings.
framing      the length-prefixed messages of gRPC in the bytes of a stream.
heads        header fields of calls: the request of a caller, and the end of a call.
deadlines    Deadlines: a shared timer for all deadlines of an event loop.
wire         the package: bytes in, events out; the caller's side. The only module that names the package.
session      the session of a caller's connection: whole calls and events out. Two builds, in Python and compiled.
turns        Turns: the whole calls of a turn of the loop, handed to their methods together.
endpoint     Endpoint: an end of a connection, on either side. Its invariants hold for `connection` and `calling`.
peers        The address and the certificate of the other side of a connection.
call         Call: a call on the server's side, as a handler sees it.
behind       CallersBehind: callers whose calls come on the connection of a door.
relay        RelayedCall: a call that goes on to another server, as bytes.
early_ends   EarlyEnds: how a call ends whose request has not ended.
connections  Connections: all connections of a server, and which of them are closed.
serving      Server: what a connection needs of its server.
connection   Connection: the connection of a caller, and its calls.
server       Http2Server: listens, and hands calls to handlers.
calling      the client's side: LoopChannel makes a Link, a Link has OutgoingCalls.

An incoming call: Endpoint reads -> session -> Connection -> Call -> the handler -> Call -> session -> Endpoint writes.
A call that arrived whole, of a method that takes turns: Endpoint -> session -> Connection -> Turns -> the method, and
back to the session, without a Call and a task (docs/decisions/0063). A call that has to wait gets both then.
"""

PACKAGE = "ngh2"
"""The package that this front needs."""
