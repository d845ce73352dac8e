# SPDX-License-Identifier: Apache-2.0
"""`reput inspect`: what is in any file of a store."""
