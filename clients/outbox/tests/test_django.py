# SPDX-License-Identifier: Apache-2.0
"""The Django app: send inside a transaction, the management command, migrations, the admin's listing."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import django
import pytest
from django.conf import settings
from pytest_reput import MemoryReput
from reput_outbox import OutboxError, Relay

from clients.outbox.tests.postgres_server import PostgresServer
from clients.outbox.tests.shop import FAST, bodies, until
from tests.support.patience import LIMIT_S

PROJECT = """
SECRET_KEY = "of a test"
INSTALLED_APPS = ["reput_outbox.django"]
DATABASES = {"default": %r}
USE_TZ = True
REPUT_OUTBOX = {"relay": {"poll_s": 0.05}}
"""


@pytest.fixture(scope="module", autouse=True)
def _project() -> None:
    settings.configure(
        SECRET_KEY="of a test",
        INSTALLED_APPS=[
            "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
            "django.contrib.messages", "django.contrib.sessions", "reput_outbox.django",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        USE_TZ=True,
    )  # fmt: skip
    django.setup()


@pytest.fixture(params=["sqlite", "postgresql"])
def described(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    """A database as Django's settings describe it."""
    if request.param == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db"), "OPTIONS": {"timeout": 20}}
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"django_{uuid.uuid4().hex[:8]}"
    server.create(name)
    return {
        "ENGINE": "django.db.backends.postgresql", "NAME": name, "USER": "postgres",
        "HOST": "127.0.0.1", "PORT": server.port,
    }  # fmt: skip


@pytest.fixture
def database(described: dict[str, object]) -> Iterator[str]:
    """The alias of a database that has the app's tables."""
    from django.core.management import call_command
    from django.db import connections
    from django.test import override_settings

    alias = f"shop_{uuid.uuid4().hex[:8]}"
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: described})[alias]
    with override_settings(REPUT_OUTBOX={"database": alias, "relay": {"poll_s": 0.05}}):
        call_command("migrate", database=alias, verbosity=0)
        yield alias
        connections[alias].close()
    del connections.settings[alias]


def test_a_message_is_sent_if_its_transaction_commits(reput: MemoryReput, database: str) -> None:
    """A committed message is stored once, in order by key; one that was rolled back is not."""
    from django.db import transaction
    from reput_outbox.core.rows import State
    from reput_outbox.django import outbox
    from reput_outbox.django.database import DjangoDatabase
    from reput_outbox.django.models import Message

    topic = reput.topic()
    with Relay(DjangoDatabase(database), FAST, connect=lambda: reput.connect(timeout_s=10)):
        for number in range(20):
            with transaction.atomic(using=database):
                outbox.send(topic, b"%d" % number, key="k", properties={"p": "ü"})
                if number % 4 == 0:
                    transaction.set_rollback(True, using=database)
        until(lambda: Message.objects.using(database).filter(state=State.SENT).count() == 15)
    assert bodies(reput, topic) == [str(number) for number in range(20) if number % 4]


def test_send_outside_of_a_transaction_is_refused(database: str) -> None:
    """Without a transaction the message would not belong to any change."""
    from django.db import transaction
    from reput_outbox.django import outbox

    with pytest.raises(OutboxError, match=r"transaction\.atomic"):
        outbox.send("orders", b"x")
    with transaction.atomic(using=database), pytest.raises(OutboxError, match="topic is empty"):
        outbox.send("", b"x")


def test_the_migrations_are_complete() -> None:
    """The models need no further migration."""
    from django.core.management import call_command

    call_command("makemigrations", "reput_outbox", check=True, dry_run=True, verbosity=0)


def test_the_listing_only_reads() -> None:
    """The admin shows messages, and offers no change."""
    from django.contrib import admin
    from reput_outbox.django.models import Message

    listing = admin.site.get_model_admin(Message)
    assert not listing.has_add_permission(None)
    assert not listing.has_change_permission(None)
    assert not listing.has_delete_permission(None)


def test_an_unknown_option_is_named() -> None:
    """A wrong name in the setting is an error with the names that there are."""
    from django.test import override_settings
    from reput_outbox.django.database import alias

    with override_settings(REPUT_OUTBOX={"topics": False}), pytest.raises(OutboxError, match="'topics'"):
        alias()


def test_the_commands_of_a_project(reput: MemoryReput, described: dict[str, object], tmp_path: Path) -> None:
    """`django-admin migrate`, the relay's command, and `reput-outbox status --django` in a project."""
    topic = reput.topic()
    (tmp_path / "project.py").write_text(PROJECT % described)
    variables = {
        **os.environ, **reput.environment, "DJANGO_SETTINGS_MODULE": "project", "PYTHONPATH": str(tmp_path)
    }  # fmt: skip

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-m", "django", "migrate", "-v0")
    run(
        "-c",
        "import django; django.setup()\n"
        "from django.db import transaction\n"
        "from reput_outbox.django import outbox\n"
        f"with transaction.atomic(): outbox.send({topic!r}, b'from a project')\n",
    )
    assert "1 pending" in run("-m", "reput_outbox", "status", "--django")
    command = [sys.executable, "-m", "django", "reput_outbox_relay"]
    with subprocess.Popen(command, env=variables) as relay:
        until(lambda: bodies(reput, topic))
        until(lambda: "1 sent" in run("-m", "reput_outbox", "status", "--django"))
        relay.send_signal(signal.SIGTERM)
        assert relay.wait(LIMIT_S) == 0
    assert bodies(reput, topic) == ["from a project"]
