# SPDX-License-Identifier: Apache-2.0
"""Calls from a service to another service.

connection   Peer: address, TLS, token. Connection: a channel, with the deadline and the metadata of its calls.
calls        PeerClient: calls over a connection. A failed call becomes PeerError, or the error that a table has for it.
leader       LeaderClient: calls to a service of several members, which finds the member that leads.
"""
