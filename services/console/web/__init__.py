# SPDX-License-Identifier: Apache-2.0
"""The pages over HTTP: routes, templates, the gate in front of them, the login, and the server."""
