# SPDX-License-Identifier: Apache-2.0
"""The demo: the real flights of 2013 from New York through all of Reput, each answer compared with the source table."""
