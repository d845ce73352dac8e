# SPDX-License-Identifier: Apache-2.0
"""The console: pages about a store for browsers, made from the public APIs with the calls of an ordinary client."""
