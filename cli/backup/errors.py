# SPDX-License-Identifier: Apache-2.0
"""The errors of backups. The command gives each a reason and an exit code."""


class BackupError(Exception):
    """A backup or a restore can't be done, or not go on."""


class BackupDamaged(BackupError):
    """A manifest or an object is missing, or has other bytes than it should have."""


class BackupNotFound(BackupError):
    """There is no such backup."""


class PlaceFailed(BackupError):
    """A directory or an object storage failed to read or write."""
