# SPDX-License-Identifier: Apache-2.0
"""The catalogue: all tools by name, with the descriptions that callers read."""

from collections.abc import Mapping

from services.console.mcp.tools import messages, places, state, waits
from services.console.mcp.tools.tool import Tool

TOOLS: Mapping[str, Tool] = {
    "find_by_key": Tool(
        "Find messages by key",
        "Find all messages with an exact key, or with a unique id, oldest first: in one topic or in all topics, dead "
        "letters and retries included, and among messages that wait for their time or their transaction (`waiting`). "
        "Rows have the `id` for "
        "get_message and message_trail. Without a topic at most 20 messages of each topic are searched, the newest.",
        messages.ByKey,
        messages.find_by_key,
    ),
    "find_by_time": Tool(
        "Find messages by time",
        "List the first messages that were stored in a span of time, in time over all queues of one topic or of all "
        "topics. Go on with the `start` and `behind` that `left_off` names.",
        messages.ByTime,
        messages.find_by_time,
    ),
    "get_message": Tool(
        "Show a message",
        "Show one message: topic, queue, times, keys, tag, properties, its state at each consumer group, and its body: "
        "as text if it is text, else as a hexadecimal dump, inflated if it is compressed, up to 24,000 characters at a "
        "time. A unique id without a topic is looked up in all topics.",
        messages.ById,
        messages.get_message,
    ),
    "message_trail": Tool(
        "Follow a message",
        "Follow one message through the store: every place where it was stored (its topic, retries, dead letters, "
        "replays), in time, each with its state at the consumer groups: settled, open, not_delivered, read, not_read. "
        "Says if it waits for its time or is half of a transaction.",
        messages.Trail,
        messages.message_trail,
    ),
    "list_topics": Tool(
        "List topics",
        "List topics, 100 at a time: count of messages and queues, retention, readers, and the lag of the group that "
        "is furthest behind.",
        places.Listed,
        places.list_topics,
    ),
    "get_topic": Tool(
        "Show a topic",
        "Show a topic: its queues, the groups that read it and their lag, arrivals of the last two hours, and the "
        "newest messages.",
        places.OfTopic,
        places.get_topic,
    ),
    "list_groups": Tool(
        "List consumer groups",
        "List consumer groups, 50 at a time, the groups with the most unsettled messages first: lag in messages, bytes "
        "and seconds, dead letters, and why a group makes no progress.",
        places.Listed,
        places.list_groups,
    ),
    "get_group": Tool(
        "Show a consumer group and what blocks it",
        "Show a consumer group: its lag in each queue, the reasons why it makes no progress, the messages at which it "
        "stands (`stands_at`), its policy, filters and members.",
        places.OfGroup,
        places.get_group,
    ),
    "dead_letters": Tool(
        "Show dead letters",
        "Show the dead letters of a consumer group: counts by topic and reason, and the letters with their origin and "
        "attempts.",
        waits.OfLetters,
        waits.dead_letters,
    ),
    "list_delayed": Tool(
        "List delayed messages",
        "List messages that wait for their delivery time, by that time, and the delay levels that have messages.",
        waits.OfDelayed,
        waits.list_delayed,
    ),
    "list_transactions": Tool(
        "List open transactions",
        "List transactions that nobody has ended, the oldest first: their producer group, and how often it was asked.",
        waits.OfTransactions,
        waits.list_transactions,
    ),
    "why_kept": Tool(
        "Show why segments are kept",
        "Show the segments of the log, 50 at a time, the oldest first, each with the Janitor's reason to keep or "
        "delete it (asked as a dry run, which deletes nothing), the policy of retention, topics with rules of their "
        "own, and a forecast of the disk. The reasons need the right of an operator.",
        state.Segments,
        state.why_kept,
    ),
    "store_status": Tool(
        "Show the state of the services",
        "Show whether the store is healthy: the state of each service, its problems and what helps, the marks of the "
        "log, replicas, disks, and ends of certificates.",
        state.Nothing,
        state.store_status,
    ),
}
