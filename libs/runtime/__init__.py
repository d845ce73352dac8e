# SPDX-License-Identifier: Apache-2.0
"""The process around a service: start and stop, settings, gRPC. Engines import nothing of it.

process      Starts a service and stops it in order: loads the settings, opens the log and the ports, handles signals.
config       Loads settings from files, the environment and flags. settings has the groups that services share.
peer         Calls from a service to another service.
rpc          The gRPC server: handlers, limits of calls, errors, health. trust has roles, tokens and certificates.
http2        HTTP/2 and gRPC in the event loop itself, as a server and as a channel.
watch        Logs, metrics and traces; pauses of the event loop, memory, fatal signals.
"""
