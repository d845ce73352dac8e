# SPDX-License-Identifier: Apache-2.0
"""The outside world as interfaces: file system, clock, workers, loops, failpoints. Real objects, and test twins."""
