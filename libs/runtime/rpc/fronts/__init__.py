# SPDX-License-Identifier: Apache-2.0
"""The fronts: what takes calls from the network and gives them to the handlers, one of two that do the same.

`in_loop` answers in the event loop itself, on libnghttp2. `grpcio` is gRPC's own server, with threads beside the loop;
it costs several times as much a call. A servicer does not know which one called.
"""
