# SPDX-License-Identifier: Apache-2.0
"""How commands read their arguments: groups and their help, values, and the question before a deletion."""
