# SPDX-License-Identifier: Apache-2.0
"""Calls that this server passes on to other servers as bytes: no message is parsed, and no kind of call is special.

From below:

fields     The fields of a head on its way: fields to leave out, and fields to add.
flow       Flow: the bytes of a call in one direction, and the credit of their sender.
upstream   Upstream: the members of a service behind this server, and the member that gets the calls.
call       RelayedCall: a call on its way, between a caller's Connection and a Link.

A call: Connection -> RelayedCall -> Link -> the service -> Link -> RelayedCall -> Connection.
"""
