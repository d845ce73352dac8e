# SPDX-License-Identifier: Apache-2.0
"""`reput check`: facts of a store are gathered, judged by limits and printed for a monitoring system."""
