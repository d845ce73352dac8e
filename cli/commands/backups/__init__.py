# SPDX-License-Identifier: Apache-2.0
"""`reput backup …` and `reput restore`."""
