# SPDX-License-Identifier: Apache-2.0
"""The outbox as a Django app: put `reput_outbox.django` into INSTALLED_APPS, and call `outbox.send`."""
