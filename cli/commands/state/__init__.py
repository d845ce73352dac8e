# SPDX-License-Identifier: Apache-2.0
"""How the services are: the page of `reput status`, segments, health."""
