# SPDX-License-Identifier: Apache-2.0
"""Delivery's plain objects: no transport; log, index and clock arrive as arguments.

A JournalOwner makes a GroupEngine for each ownership; servicers ask the owner for the engine and call its parts. The
rooms, from below; each may use the rooms above it in this list:

ports         the engine's view of other services: Log, Index, TimerIndex, LevelIndex and HalfIndex, the messages that
              they read and write, and how long the engine waits for them. `rpc/log` implements them over gRPC.
state         values made of the journal's events alone: Groups has a QueueState for each queue of each group,
              LastAttempts, and Done (delayed messages that are done). Handle names a delivery. Attempts and
              Repeats answer repeated calls. Tally counts.
journal       Journal writes events, and messages with them, in order. replay_journal makes Groups of them again,
              JournalCopier writes copies so that old records may go. StoreTime is the log's time, GroupTime the time
              of deliveries.
dead_letters  DeadLetterWriter buries messages after their last attempt. DeadLetters lists and replays them.
delays        Delays reads the timer topic into Schedules and appends messages at their time. DelayQueries lists,
              cancels and renews them. DelayLevels appends messages with a delay level, each DelayLevel in its order.
transactions  Transactions ends half messages, Table has the open transactions, Checks offers them to their producers.
receive       Positions is where groups begin. Subscriptions has a Subscription for each group and topic that receives:
              Feeds read ahead, DueMessages and FreshMessages choose for a DeliveryBatch, Filters says which member a
              message is for, News wakes members. Settling acknowledges, gives back, extends and buries.
own           JournalOwner, GroupEngine, the handover to RocketMQ and back, lags and standstills, counters.

A receive: GroupEngine.receive -> Positions.begin -> Subscription.take -> DueMessages, FreshMessages ->
DeliveryBatch.add -> Journal.write -> DeliveryBatch.delivered. A settlement: Settling.settle -> Groups.apply ->
Journal.write -> the outcome, once the record is durable. An ownership: Journal.begin -> replay_journal ->
take_over_positions -> GroupEngine.start -> maintenance each second until the journal fails -> GroupEngine.stop ->
hand_over.
"""
