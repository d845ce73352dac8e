# SPDX-License-Identifier: Apache-2.0
"""The state of the services: the page of `reput status`, segments, health."""
