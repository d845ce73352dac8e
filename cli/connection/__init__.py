# SPDX-License-Identifier: Apache-2.0
"""The addresses of the services, whether a process listens there, and the client that calls them."""
