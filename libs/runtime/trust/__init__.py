# SPDX-License-Identifier: Apache-2.0
"""Who may do what: roles of methods, tokens, certificates."""
