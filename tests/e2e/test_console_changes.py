# SPDX-License-Identifier: Apache-2.0
"""The console's changes over HTTP: previews, confirmations, forged and stale confirmations, outages, effects."""

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
import reput_client
from reput_client import SharePolicy

from tests.console.filling import HOSTILE, LONG_NAME, SCRIPT, bury, fill
from tests.support.console import REPOSITORY, RunningConsole, console_of, in_path
from tests.support.console_changes import FORM, confirm, outcome, preview, receipt
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e

CHANGES = (
    "/groups/billing/reset", "/groups/billing/pause", "/groups/billing/resume", "/dead-letters/billing/replay",
    "/delayed/cancel", "/transactions/resolve",
)  # fmt: skip
EARLIEST = {"topic": "orders", "to": "earliest"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("console"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    with console_of(filled.targets, "--store-timeout-ms", "60000", "--allow-actions", "true") as running:
        yield running


@pytest.fixture
def client(filled: Store) -> Iterator[reput_client.Client]:
    with reput_client.connect(**filled.targets) as connected:
        yield connected


def offsets(client: reput_client.Client, group: str) -> dict[tuple[str, int], int]:
    """Return the positions of a group that keeps offsets."""
    return {(one.topic, one.queue_id): one.queue_offset for found in client.groups.list() if found.name == group
            for one in found.offsets}  # fmt: skip


def test_a_console_that_only_shows(filled: Store) -> None:
    """Without `allow_actions` every route of a change refuses, also a confirmation, and no page leads there."""
    with console_of(filled.targets) as console:
        for path in CHANGES:
            assert console.get(path).status == 403, path
            assert console.get(f"{path}.json").status == 403, path
            assert console.ask("POST", path, {**FORM, "Origin": console.url}, "x=1").status == 403, path
        for path in ("/groups/billing", "/groups/readers", "/dead-letters/billing", "/delayed", "/transactions"):
            text = console.get(path).text
            assert not any(word in text for word in ("/reset", "/pause", "/replay", "/cancel", "/resolve")), path
    beyond = ("--listen-host", "0.0.0.0", "--allow-insecure", "true", "--allow-anonymous", "true", "--port", "0")
    command = [sys.executable, "-m", "services.console", *beyond, "--metrics-port", "0", "--allow-actions", "true"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, "allow_actions needs a login" in done.stderr) == (2, True), done.stderr


def test_changes_are_switched_off_while_the_console_runs(filled: Store, tmp_path: Path) -> None:
    """A confirmation whose preview was shown before is refused after `allow_actions` is off and SIGHUP came."""
    config = tmp_path / "reput.toml"
    config.write_text("[console]\nallow_actions = true\n")
    with console_of(filled.targets, "--config", str(config)) as console:
        confirmation = preview(console, "/groups/billing/pause")
        config.write_text("[console]\nallow_actions = false\n")
        console.process.send_signal(signal.SIGHUP)
        end_s = time.monotonic() + LIMIT_S
        while console.get("/groups/billing/pause").status != 403:
            assert time.monotonic() < end_s
        assert confirm(console, confirmation).status == 403
        assert not console.json("/groups/billing.json")["policy"]["is_paused"]


def test_pages_lead_to_their_changes(console: RunningConsole) -> None:
    """The pages of a group, its letters, delayed messages, transactions and of such a message lead to previews."""
    delayed, half = console.json("/delayed.json")["rows"][0], console.json("/transactions.json")["rows"][0]
    leads = {
        "/groups/billing": ("/groups/billing/reset", "/groups/billing/pause"),
        "/groups/paused": ("/groups/paused/resume",),
        "/groups/readers": ("/groups/readers/reset",),
        "/dead-letters/billing": ("/dead-letters/billing/replay",),
        "/delayed": ("/delayed/cancel?topic=reminders",),
        "/transactions": (f"/transactions/resolve?id={half['id']}&amp;how=rollback",),
        f"/messages/{delayed['row']['id']}": (f"/delayed/cancel?topic=reminders&amp;id={delayed['message_id']}",),
        f"/messages/{half['offset_message_id']}": (f"/transactions/resolve?id={half['id']}&amp;how=commit",),
    }
    for path, places in leads.items():
        text = console.get(path).text
        for place in places:
            assert f'href="{place}' in text or f'action="{place}' in text, (path, place)
            target = place.replace("&amp;", "&")
            assert console.get(target).status == 200, target


def test_move_of_a_group_that_keeps_offsets(console: RunningConsole, client: reput_client.Client) -> None:
    """A preview changes nothing, a confirmation makes the shown change, and its repetition says that it did nothing."""
    before = offsets(client, "readers")
    shown = console.json(f"/groups/readers/reset.json?{urlencode(EARLIEST)}")
    assert [row[:5] for row in shown["rows"]] == [[0, 20, 0, 0, 20], [1, 10, 0, 0, 10]]
    assert shown["commands"] == [
        "reput groups reset readers orders --to earliest --dry-run",
        "reput groups reset readers orders --to earliest",
    ]
    confirmation = preview(console, "/groups/readers/reset", **EARLIEST)
    assert offsets(client, "readers") == before
    answer = confirm(console, confirmation)
    assert receipt(console, answer, confirmation.cookie)["outcome"] == "done"
    assert offsets(client, "readers") == {("orders", 0): 0, ("orders", 1): 0}
    again, text = outcome(console, confirmation)
    assert (again, "sent twice" in text) == ("not_done", True)
    for _ in range(2):  # a receipt that is read again repeats nothing
        assert console.get(answer.headers["location"], Cookie=confirmation.cookie).status == 200
    back = preview(console, "/groups/readers/reset", topic="orders", to="offset", at="0/20")
    assert outcome(console, back)[0] == "done"
    assert outcome(console, preview(console, "/groups/readers/reset", topic="orders", to="latest"))[0] == "done"
    assert sum(offsets(client, "readers").values()) > 190
    early = preview(console, "/groups/readers/reset", topic="orders", to="time", at="-1d")
    assert outcome(console, early)[0] == "done"
    assert set(offsets(client, "readers").values()) == {0}


def test_move_of_a_group_that_shares(console: RunningConsole, client: reput_client.Client) -> None:
    """The preview is Delivery's dry run: the same moves as the command line shows."""
    shown = console.json("/groups/billing/reset.json?topic=orders&to=latest")
    dry = client.share_groups.reset("billing", "orders", "latest", dry_run=True)
    assert [tuple(row[:3]) for row in shown["rows"]] == [
        (one.queue_id, one.from_queue_offset, one.to_queue_offset) for one in dry
    ]
    assert any("passed over" in text for text in shown["warnings"])
    assert outcome(console, preview(console, "/groups/billing/reset", topic="orders", to="latest"))[0] == "done"
    assert sum(queue.lag for queue in client.share_groups.get("billing").queues if queue.topic == "orders") == 0
    assert outcome(console, preview(console, "/groups/billing/reset", topic="orders", to="time", at="-1d"))[0] == "done"
    assert sum(queue.lag for queue in client.share_groups.get("billing").queues if queue.topic == "orders") >= 200
    refusal = console.json("/groups/billing/reset.json?topic=orders&to=offset&at=0/1")["refusal"]
    assert "no offset to set" in refusal


def test_a_group_gets_a_position_in_all_queues(console: RunningConsole, client: reput_client.Client) -> None:
    """The preview has each queue in which the store will give the group a position, as the command line's dry run."""
    client.groups.commit("half", [reput_client.ConsumerOffset("orders", 0, 5)])
    shown = console.json("/groups/half/reset.json?topic=orders&to=latest")
    assert [row[1] for row in shown["rows"]] == [5, None]
    assert any("1 queue where it had none" in text for text in shown["warnings"])
    assert outcome(console, preview(console, "/groups/half/reset", topic="orders", to="latest"))[0] == "done"
    assert list(offsets(client, "half").values()) == [row[2] for row in shown["rows"]]


def test_the_audit_names_the_reader(filled: Store, tmp_path: Path) -> None:
    """A change of a reader with a login has a line with the reader; the session of another reader confirms nothing."""
    tokens = tmp_path / "tokens"
    tokens.write_text("first-token\nsecond-token\n")
    tokens.chmod(0o600)
    flags = ("--login-token-file", str(tokens), "--allow-actions", "true")
    with console_of(filled.targets, *flags) as console:
        first, second = (session_of(console, name) for name in ("first-token", "second-token"))
        confirmation = preview(console, "/groups/paused/resume", cookie=first)
        other = preview(console, "/groups/paused/resume", cookie=second)
        assert confirm(console, confirmation, {"Cookie": second}).status == 403
        assert confirm(console, confirmation, {"Cookie": ""}).status == 401
        stolen = f"{second}; {confirmation.cookie.partition('; ')[2]}"
        assert confirm(console, confirmation, {"Cookie": stolen}).status == 403
        assert outcome(console, confirmation)[0] == "done"
        assert outcome(console, other)[0] == "not_done"
    lines = [line for line in filled.run("audit", "list", "--json").rows if line.get("groups") == ["paused"]]
    digest = hashlib.sha256(b"first-token").hexdigest()[:8]
    assert lines[-1]["on_behalf_of"] == (name := f"a reader of the console with the token {digest}")
    assert f" for {name}" in " ".join(filled.run("audit", "list").output.split())


def session_of(console: RunningConsole, token: str) -> str:
    """Log in, and return the cookie of the session."""
    page = console.get("/login")
    form_token = page.text.partition('name="form_token" value="')[2].partition('"')[0]
    sent = {**FORM, "Cookie": page.headers["set-cookie"].partition(";")[0]}
    answer = console.ask("POST", "/login", sent, urlencode({"token": token, "form_token": form_token}))
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_stale_preview_is_refused(console: RunningConsole, client: reput_client.Client) -> None:
    """A group that has moved since its preview is not moved again."""
    client.groups.commit("stale", [reput_client.ConsumerOffset("orders", 0, 5)])
    confirmation = preview(console, "/groups/stale/reset", **EARLIEST)
    client.groups.commit("stale", [reput_client.ConsumerOffset("orders", 0, 7)])
    result, text = outcome(console, confirmation)
    assert (result, "not where it was" in text) == ("not_done", True)
    assert offsets(client, "stale") == {("orders", 0): 7}
    client.groups.delete("stale")
    assert outcome(console, confirmation)[0] == "not_done"


def test_pause_and_resume(console: RunningConsole, client: reput_client.Client) -> None:
    """A pause keeps the rest of the policy; a policy that was changed meanwhile is not overwritten."""
    client.share_groups.set("held", SharePolicy(attempts_max=3))
    confirmation = preview(console, "/groups/held/pause")
    client.share_groups.set("held", SharePolicy(attempts_max=4))
    assert outcome(console, confirmation)[0] == "not_done"
    assert outcome(console, preview(console, "/groups/held/pause"))[0] == "done"
    policy = client.share_groups.get("held").policy
    assert (policy.is_paused, policy.attempts_max) == (True, 4)
    assert "paused already" in console.json("/groups/held/pause.json")["refusal"]
    assert outcome(console, preview(console, "/groups/held/resume"))[0] == "done"
    assert not client.share_groups.get("held").policy.is_paused
    assert "keeps offsets" in console.json("/groups/readers/pause.json")["refusal"]


def test_replay_of_dead_letters(console: RunningConsole, client: reput_client.Client) -> None:
    """Selected letters go back, once; then all letters of a condition; the others stay."""
    letters = list(client.dead_letters.list("billing"))
    place = "/".join(map(str, letters[0].place))
    shown = console.json(f"/dead-letters/billing/replay.json?place={in_path(place)}&rate=50")
    assert shown["commands"][0] == f"reput dlq replay billing {place} --rate 50 --dry-run"
    assert [row[1] for row in shown["rows"]] == [1]
    confirmation = preview(console, "/dead-letters/billing/replay", place=place, rate="50")
    assert len(list(client.dead_letters.list("billing"))) == len(letters)
    assert outcome(console, confirmation) == ("done", "1 letter went back.")
    left = list(client.dead_letters.list("billing"))
    assert letters[0].place not in [one.place for one in left]
    assert outcome(console, confirmation)[0] == "not_done"
    assert len(list(client.dead_letters.list("billing"))) == len(letters) - 1
    some = preview(console, "/dead-letters/billing/replay", where="region = 'eu'")
    bury(client, "payments", 1)  # a letter that dies after the preview is not part of it
    assert outcome(console, some)[0] == "done"
    assert {one.origin_topic for one in client.dead_letters.list("billing")} >= {"payments"}
    assert "region" not in str([one.message.properties for one in client.dead_letters.list("billing") if
                                one.message.properties.get("region") == "eu"])  # fmt: skip


def test_a_confirmation_that_is_sent_many_times_at_once(console: RunningConsole, client: reput_client.Client) -> None:
    """Each letter goes back once, however many presses arrive together."""

    def end() -> int:
        return sum(queue.max_queue_offset for queue in client.queues.list("orders"))

    bury(client, "orders", 3)
    letters = [one for one in client.dead_letters.list("billing") if one.origin_topic == "orders"]
    place, before = ",".join(f"{one.place[0]}/{one.place[1]}" for one in letters), end()
    confirmation = preview(console, "/dead-letters/billing/replay", place=place)
    with ThreadPoolExecutor(8) as presses:
        found = list(presses.map(lambda _: outcome(console, confirmation)[0], range(8)))
    assert "done" in found
    assert "unknown" not in found
    end_s = time.monotonic() + LIMIT_S
    while end() < before + len(letters):
        assert time.monotonic() < end_s
    assert not {one.place for one in letters} & {one.place for one in client.dead_letters.list("billing")}
    assert end() == before + len(letters)


def test_another_console_takes_a_confirmation(console: RunningConsole, filled: Store) -> None:
    """A console keeps nothing: a preview of a console is confirmed at another, and its receipt is read at the first."""
    confirmation = preview(console, "/groups/billing/pause")
    with console_of(filled.targets, "--allow-actions", "true") as other:
        there = replace(confirmation, cookie=confirmation.cookie.replace(str(console.port), str(other.port)))
        answer = confirm(other, there)
        assert receipt(console, answer, confirmation.cookie)["outcome"] == "done"
    assert outcome(console, preview(console, "/groups/billing/resume"))[0] == "done"


def test_cancel_and_resolve(console: RunningConsole, client: reput_client.Client) -> None:
    """A delayed message is cancelled; a transaction is committed, another rolled back."""
    delayed = next(iter(client.delayed.list("reminders")))
    confirmation = preview(console, "/delayed/cancel", topic="reminders", id=delayed.message_id)
    assert outcome(console, confirmation)[0] == "done"
    assert delayed.message_id not in [one.message_id for one in client.delayed.list("reminders")]
    assert outcome(console, confirmation)[0] == "not_done"
    first, second = list(client.transactions.list())[:2]
    commit = preview(console, "/transactions/resolve", id=first.id, how="commit")
    rollback = preview(console, "/transactions/resolve", id=first.offset_message_id, how="rollback")
    assert outcome(console, commit)[0] == "done"
    result, text = outcome(console, rollback)
    assert (result, "no open transaction" in text) == ("not_done", True)
    assert outcome(console, preview(console, "/transactions/resolve", id=second.id, how="rollback"))[0] == "done"
    assert list(client.transactions.list()) == []


def test_forged_confirmations(console: RunningConsole, client: reput_client.Client, subtests: pytest.Subtests) -> None:
    """A confirmation without its token, of another session, of other arguments, or of another site changes nothing."""
    client.groups.commit("forged", [reput_client.ConsumerOffset("orders", 0, 5)])
    good = preview(console, "/groups/forged/reset", **EARLIEST)
    foreign = preview(console, "/groups/forged/reset", **EARLIEST)
    other_path = preview(console, "/groups/billing/pause")
    token = good.fields["form_token"]
    forged = {
        "no token": (good.given(form_token=""), {}),
        "empty token": (good.given(form_token="x"), {}),
        "a letter of the token": (good.given(form_token=token[:-1] + ("0" if token[-1] != "0" else "1")), {}),
        "the token of another session": (good.given(form_token=foreign.fields["form_token"]), {}),
        "the token of another change": (good.given(form_token=other_path.fields["form_token"]), {}),
        "another place": (good.given(to="latest"), {}),
        "another state": (good.given(state="0" * 32), {}),
        "no cookie": (good, {"Cookie": ""}),
        "an empty cookie": (good, {"Cookie": good.cookie.partition("=")[0] + "="}),
        "another cookie": (good, {"Cookie": foreign.cookie}),
        "another site": (good, {"Origin": "https://evil.example"}),
        "another port": (good, {"Origin": "http://127.0.0.1:1"}),
        "another site without its name": (good, {"Origin": "", "Sec-Fetch-Site": "cross-site"}),
        "a page of the same site": (good, {"Origin": "", "Sec-Fetch-Site": "same-site"}),
        "no origin": (good, {"Origin": ""}),
        "no form": (good, {"Content-Type": "text/plain"}),
        "too many fields": (good.given(**{f"f{at}": "x" for at in range(20)}), {}),
    }  # fmt: skip
    for name, (confirmation, headers) in forged.items():
        with subtests.test(name):
            if name == "no form":
                answer = console.ask("POST", good.path, {**FORM, "Origin": console.url, "Cookie": good.cookie}, "{}")
            else:
                answer = confirm(console, confirmation, headers)
            assert answer.status == 403, answer
            assert offsets(client, "forged") == {("orders", 0): 5}
    assert console.get("/receipt?of=" + confirm(console, good).headers["location"][12:]).status == 404
    assert offsets(client, "forged") == {("orders", 0): 0, ("orders", 1): 0}
    for text in ("", "x", "e30.", f"e30.{'0' * 64}"):
        assert console.get(f"/receipt?of={text}", Cookie=good.cookie).status == 404, text


def test_wrong_arguments(console: RunningConsole, subtests: pytest.Subtests) -> None:
    """A wrong argument is named with its value and the expected form; hostile text never becomes markup."""
    hostile = in_path(HOSTILE)
    refused = {
        "/groups/readers/reset?topic=orders&to=nowhere": "to is",
        "/groups/readers/reset?topic=orders&to=time&at=soon": "no time",
        "/groups/readers/reset?topic=orders&to=offset&at=1": "a queue and an offset",
        "/groups/readers/reset?topic=orders&to=offset&at=0/99999999": "ends at offset",
        "/groups/readers/reset?topic=orders&to=offset&at=77/0": "no queue 77",
        "/groups/readers/reset?topic=payments&to=earliest": "no position in topic payments",
        "/dead-letters/billing/replay?rate=0": "rate is",
        "/dead-letters/billing/replay?rate=abc": "rate is",
        "/dead-letters/billing/replay?place=1": "place is",
        "/dead-letters/billing/replay?where=x%20%3D": "ends too early",
        "/dead-letters/billing/replay?end=99999999999999": "end is",
        "/dead-letters/nope/replay": "nope",
        "/transactions/resolve?id=nope&how=commit": "no open transaction",
        "/transactions/resolve?id=nope&how=x": "how is",
        "/delayed/cancel?topic=reminders&id=nope": "waits for its time",
        f"/groups/readers/reset?topic={hostile}&to=earliest": "",
        f"/groups/readers/reset?topic=orders&to={hostile}": "",
        f"/groups/readers/reset?topic=orders&to=time&at={hostile}": "",
        f"/dead-letters/billing/replay?where={hostile}&rate={hostile}&place={hostile}": "",
        f"/delayed/cancel?topic={hostile}&id={hostile}": "",
        f"/transactions/resolve?id={hostile}&how={hostile}": "",
    }  # fmt: skip
    for path, text in refused.items():
        with subtests.test(path[:80]):
            page = console.get(path)
            assert page.status == 200, page
            assert "Not possible" in page.text
            assert 'class="confirm"' not in page.text
            assert text in page.text
            assert SCRIPT not in page.text
            shown = re.sub(r'(?:value|data-copy)="[^"]*"', "", page.text)  # attributes keep the text as it was given
            assert not {"\u202e", "\x07", "\x1b", "\x7f"} & set(shown)
    assert console.get("/groups/nope/reset").status == 404
    for name in (hostile, in_path(LONG_NAME), "%2e%2e", "a" * 300):
        assert console.get(f"/groups/{name}/reset").status in (404, 503), name


def test_a_service_that_is_away_between_preview_and_confirmation(tmp_path: Path) -> None:
    """Without a second look a change is "not done", without an answer "not known"; both work afterwards."""
    with store(tmp_path, "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client, count=20)
        with console_of(running.targets, "--store-timeout-ms", "3000", "--allow-actions", "true") as console:
            confirmation = preview(console, "/groups/readers/reset", **EARLIEST)
            with stopped(running.child("indexer")):
                assert outcome(console, confirmation)[0] == "not_done"
            assert outcome(console, confirmation)[0] == "done"
            pause = preview(console, "/groups/billing/pause")
            with stopped(
                running.child("commitlog")
            ):  # Delivery has the policy, and waits for the log with a new policy
                answer = confirm(console, pause)
                found = receipt(console, answer, pause.cookie)
                assert (found["outcome"], found["back"]) == ("unknown", "/groups/billing")
                page = console.get(answer.headers["location"], Cookie=pause.cookie)
                assert (page.status, "outcome is not known" in page.text) == (503, True)
            end_s = time.monotonic() + LIMIT_S
            while not console.json("/groups/billing.json")["policy"]["is_paused"]:
                assert time.monotonic() < end_s, "the change that was begun was not made"
            replay = preview(console, "/dead-letters/billing/replay")
            os.kill(running.child("delivery"), signal.SIGKILL)
            result, text = outcome(console, replay)
            assert (result, "does not answer" in text) == ("not_done", True)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process within the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_masked_field_is_no_condition(filled: Store) -> None:
    """A condition of a replay would tell masked values by its counts; a preview shows no masked keys and tags."""
    flags = ("--allow-actions", "true", "--masked-fields", "region,KEYS")
    with console_of(filled.targets, *flags) as console:
        shown = console.json("/dead-letters/billing/replay.json?where=region%20%3D%20'eu'")
        assert ("mask" in shown["refusal"], shown["rows"]) == (True, [])
        row = console.json("/delayed.json")["rows"][-1]
        cancel = console.json(f"/delayed/cancel.json?topic=reminders&id={row['message_id']}")
        assert cancel["rows"]
        assert "reminder-" not in str(cancel)
