# SPDX-License-Identifier: Apache-2.0
"""Times: what time it is for the log, and for the deliveries of groups."""
