# SPDX-License-Identifier: Apache-2.0
"""Backup and restore of a store: manifests, places that keep backups, and the copies both ways.

`manifest` and `plan` are pure. `places` are directories and object storage. docs/backup.md is the page for operators.
"""
