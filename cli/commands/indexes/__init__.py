# SPDX-License-Identifier: Apache-2.0
"""All indexes anew, and queues that nobody needs any more."""
