# SPDX-License-Identifier: Apache-2.0
"""The three services. They never import each other: they meet in protos and in the bytes of libs.formats."""
