# SPDX-License-Identifier: Apache-2.0
"""Messages at random times against real services, and their delays: `make timed`."""
