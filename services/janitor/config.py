# SPDX-License-Identifier: Apache-2.0
"""JanitorConfig: every setting of the Janitor. Defaults are RocketMQ's where it has the setting."""
