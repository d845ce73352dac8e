# SPDX-License-Identifier: Apache-2.0
"""The tables of the outbox."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="RelayState",
            fields=[
                ("id", models.IntegerField(primary_key=True, serialize=False)),
                ("writer_id", models.CharField(max_length=64)),
                ("next_number", models.BigIntegerField()),
                ("base", models.BigIntegerField()),
                ("check_id", models.BigIntegerField()),
                ("holder", models.CharField(max_length=255)),
                ("beat", models.BigIntegerField()),
                ("trouble", models.TextField()),
            ],
            options={
                "db_table": "reput_outbox_relay",
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("uid", models.CharField(max_length=32)),
                ("topic", models.CharField(max_length=127)),
                ("order_key", models.CharField(max_length=255, null=True)),
                ("tag", models.CharField(max_length=255, null=True)),
                ("lookup_keys", models.TextField()),
                ("properties", models.TextField()),
                ("body", models.BinaryField()),
                ("size", models.IntegerField()),
                ("created_ms", models.BigIntegerField()),
                ("deliver_at_ms", models.BigIntegerField(null=True)),
                (
                    "state",
                    models.SmallIntegerField(
                        choices=[(0, "pending"), (1, "assigned"), (2, "sent"), (3, "refused"), (4, "blocked")]
                    ),
                ),
                ("attempts", models.IntegerField()),
                ("reason", models.TextField()),
                ("batch", models.BigIntegerField(null=True)),
                ("sent_ms", models.BigIntegerField(null=True)),
            ],
            options={
                "db_table": "reput_outbox",
                "indexes": [
                    models.Index(fields=["state", "id"], name="reput_outbox_state"),
                    models.Index(condition=models.Q(("state__gte", 3)), fields=["order_key"], name="reput_outbox_held"),
                ],
            },
        ),
    ]
