# SPDX-License-Identifier: Apache-2.0
"""Where the services are, whether somebody is there, and the client that talks to them."""
