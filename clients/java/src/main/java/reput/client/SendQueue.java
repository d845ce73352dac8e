// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import io.grpc.Status;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import reput.commitlog.v1.AppendMessage;
import reput.commitlog.v1.AppendOutcome;
import reput.commitlog.v1.AppendResult;
import reput.commitlog.v1.AppendStreamRequest;
import reput.common.v1.Host;

/**
 * The logic of a producer: batches, the window, outcomes, retries and splits. No I/O, no clock, no threads.
 *
 * <p>The states of a message: in the open batch, ready, in flight, settled; or ready again when it is retried.
 *
 * <p>Invariants: batches are in flight in the order in which {@code pop} returned them, and outcomes come in this
 * order. {@code unsettledBytes} is the size of all messages that were added and not settled. While {@code
 * blockedUntilNs} lies ahead, or after a refusal that moves appends to another target, {@code pop} returns no batch.
 *
 * <p>Messages are stored in the order of {@code add}, apart from repetitions behind their first copy. A batch that is
 * sent while others are in flight needs the batch before it: the server refuses it with AFTER_REFUSAL if that one was
 * refused, and it waits again behind the refused messages. After a refusal or a broken stream a single batch is in
 * flight until a batch is stored.
 *
 * <p>Callers: a single caller at a time, under a lock of the caller. Outcomes are collected for {@link #popSettled} and
 * not given to their futures here, so that the caller can release its lock before. Times are nanoseconds of a clock
 * that begins near 0.
 *
 * <p>A bad message must not fail the other messages of its batch. A refusal that names messages[i] fails this message,
 * and the rest is sent again. A refusal that names a topic fails all messages of this topic. Any other refusal of the
 * batch as invalid cuts the batch in halves.
 */
final class SendQueue {
    /** Most messages of a batch; as in append_service.proto. */
    static final int BATCH_MESSAGE_COUNT_MAX = 32_768;
    /** The reason of the refusal of a batch that needs the batch before it. */
    private static final String AFTER_REFUSAL = "AFTER_REFUSAL";
    /** The value of {@link #waitNs} if no time is known. */
    static final long FOREVER = Long.MAX_VALUE;

    private static final int MESSAGES_FIELD = AppendStreamRequest.MESSAGES_FIELD_NUMBER;
    private static final int PORT_MAX = 65_535;
    private static final Set<String> TOPIC_REASONS =
            Set.of("TOPIC_NOT_FOUND", "TOPIC_FORBIDDEN", "TOPIC_SET_APART", "BAD_TOPIC_NAME", "NOT_PERMITTED");
    private static final Pattern MESSAGE_INDEX = Pattern.compile("messages\\[(\\d{1,9})]");

    private final ProducerOptions options;
    private final RetryPolicy retry;
    private final PriorityQueue<Batch> ready = new PriorityQueue<>(Comparator.comparingLong(Batch::sequence));
    private final ArrayDeque<Batch> inFlight = new ArrayDeque<>();
    private List<Entry> open = new ArrayList<>();
    private int openSizeBytes;
    private long openUntilNs;
    private boolean isHurried;
    private long batchCount;
    private long nextSequence;
    private long unsettledBytes;
    private long blockedUntilNs;
    private ReputException moved;
    private boolean isProbing;
    private List<Settlement> settled = new ArrayList<>();

    /** An encoded message in the queue. {@code sequence} is its place among all added messages. */
    record Entry(AppendMessage message, int sizeBytes, String uniqueId, CompletableFuture<SendResult> future,
            long sequence) {}

    /**
     * Messages that are sent together. {@code followCount}: the number of attempts in a row that were sent to the
     * leader of an answer; these are no failed attempts. {@code wasSent}: a failed attempt may have stored it. {@code
     * needsPrevious}: it was sent while other batches were in flight.
     */
    record Batch(List<Entry> entries, int attempt, int followCount, boolean wasSent, boolean needsPrevious) {
        Batch(List<Entry> entries, int attempt, int followCount, boolean wasSent) {
            this(entries, attempt, followCount, wasSent, false);
        }

        Batch(List<Entry> entries, int attempt, boolean wasSent) {
            this(entries, attempt, 0, wasSent);
        }

        Batch inFlight(boolean needsPrevious) {
            return new Batch(entries, attempt, followCount, wasSent, needsPrevious);
        }

        long sequence() {
            return entries.get(0).sequence;
        }

        AppendStreamRequest toRequest(Durability durability) {
            AppendStreamRequest.Builder request = AppendStreamRequest.newBuilder();
            entries.forEach(entry -> request.addMessages(entry.message));
            return request.setDurabilityValue(durability.ordinal()).setNeedsPrevious(needsPrevious).build();
        }
    }

    /** The outcomes of messages: results in their order, or the common error. */
    record Settlement(List<Entry> entries, List<SendResult> results, ReputException error) {
        /** Gives the outcomes to their futures, whose callbacks run here. */
        void deliver() {
            for (int i = 0; i < entries.size(); i++) {
                if (error == null) {
                    entries.get(i).future.complete(results.get(i));
                } else {
                    entries.get(i).future.completeExceptionally(error);
                }
            }
        }
    }

    /**
     * The parts of a refused batch: the messages that the refusal names, and the other messages in batches to send
     * again.
     */
    private record Split(List<Entry> bad, List<List<Entry>> rest) {}

    SendQueue(ProducerOptions options) {
        this.options = options;
        this.retry = options.retry();
    }

    /** Returns the size of a message within a request. */
    static int sizeBytes(AppendMessage message) {
        return CodedOutputStream.computeMessageSize(MESSAGES_FIELD, message);
    }

    /** Returns whether every message is settled. */
    boolean isIdle() {
        return unsettledBytes == 0;
    }

    boolean hasInFlight() {
        return !inFlight.isEmpty();
    }

    /** Returns whether a message of this size may be added now. An empty queue takes a message of any size. */
    boolean hasRoom(int sizeBytes) {
        return unsettledBytes == 0 || unsettledBytes + sizeBytes <= options.windowBytes();
    }

    /** Adds a message. Returns whether a batch began or became ready, so that the sender must look again. */
    boolean add(AppendMessage message, String uniqueId, CompletableFuture<SendResult> future, long nowNs) {
        int sizeBytes = sizeBytes(message);
        if (openSizeBytes + sizeBytes > options.batchSizeBytes()) {
            closeBatch();
        }
        boolean isNews = open.isEmpty();
        if (isNews) {
            openUntilNs = nowNs + options.linger().toNanos();
            isHurried = false;
        }
        open.add(new Entry(message, sizeBytes, uniqueId, future, nextSequence++));
        openSizeBytes += sizeBytes;
        unsettledBytes += sizeBytes;
        if (openSizeBytes >= options.batchSizeBytes() || open.size() >= BATCH_MESSAGE_COUNT_MAX) {
            closeBatch();
            isNews = true;
        }
        return isNews;
    }

    /** Returns the number of the batch that the last message was added to. */
    long batchNumber() {
        return open.isEmpty() ? batchCount : batchCount + 1;
    }

    /**
     * Ends the linger of the open batch, if it has this number: a caller waits for the outcome of its messages. Further
     * messages are added until the batch is popped. Returns whether the sender must look again.
     */
    boolean hurry(long batchNumber) {
        if (open.isEmpty() || batchNumber != batchNumber() || isHurried) {
            return false;
        }
        isHurried = true;
        openUntilNs = 0;
        return true;
    }

    /** Makes the open batch ready, at any age. */
    void closeBatch() {
        if (!open.isEmpty()) {
            batchCount++;
            ready.add(new Batch(open, 0, false));
            open = new ArrayList<>(open.size());
            openSizeBytes = 0;
        }
    }

    /** Pops the next batch to send, null if no batch is due. It is in flight from now on. */
    Batch pop(long nowNs) {
        if (mustWait() || nowNs < blockedUntilNs) {
            return null;
        }
        if (ready.isEmpty() && nowNs >= openUntilNs) {
            closeBatch();
        }
        if (ready.isEmpty()) {
            return null;
        }
        Batch batch = ready.poll().inFlight(hasInFlight());
        inFlight.add(batch);
        return batch;
    }

    /** Returns whether {@link #pop} returns no batch before another outcome, or before the end of the stream. */
    private boolean mustWait() {
        return moved != null || (isProbing && hasInFlight());
    }

    /** Returns nanoseconds until {@link #pop} may return a batch; {@link #FOREVER} if it needs another event first. */
    long waitNs(long nowNs) {
        if (mustWait() || (ready.isEmpty() && open.isEmpty())) {
            return FOREVER;
        }
        return Math.max(0, Math.max(ready.isEmpty() ? openUntilNs : 0, blockedUntilNs) - nowNs);
    }

    /**
     * Applies the server's answers to the batches in flight, oldest first.
     *
     * <p>Throws IllegalStateException for an inconsistent answer; its batch is still in flight then.
     */
    void onOutcomes(List<AppendOutcome> outcomes, long nowNs) {
        for (AppendOutcome outcome : outcomes) {
            Batch batch = inFlight.peek();
            if (batch == null) {
                throw new IllegalStateException("more batches were answered than sent");
            }
            if (outcome.hasResult()) {
                settle(new Settlement(batch.entries, results(batch.entries, outcome.getResult()), null));
                inFlight.remove();
                isProbing = false;
            } else {
                ReputException error = ReputException.of(outcome.getError());
                inFlight.remove();
                onRefused(batch, error, nowNs);
            }
        }
    }

    /**
     * Returns the refusal that moves appends to another target, when no batch is in flight: then the stream has to end.
     */
    ReputException moved() {
        return inFlight.isEmpty() ? moved : null;
    }

    /** Makes the batches in flight ready again after the end of the stream, or fails them if no retry is left. */
    void onBroken(ReputException error, boolean wasSent, long nowNs) {
        moved = null;
        isProbing = true;
        for (Batch batch : inFlight) {
            Batch failed = new Batch(batch.entries, batch.attempt, batch.wasSent || wasSent);
            if (!again(failed, error, nowNs)) {
                settle(failure(failed, failed.entries, error));
            }
        }
        inFlight.clear();
    }

    /** Fails all messages, for a producer that is closed without waiting. */
    void failAll(ReputException error) {
        closeBatch();
        inFlight.forEach(batch -> settle(failure(new Batch(batch.entries, batch.attempt, true), batch.entries, error)));
        inFlight.clear();
        for (Batch batch; (batch = ready.poll()) != null; ) {
            settle(failure(batch, batch.entries, error));
        }
    }

    /** Pops the outcomes that the caller has to deliver, each once. */
    List<Settlement> popSettled() {
        List<Settlement> popped = settled;
        settled = new ArrayList<>();
        return popped;
    }

    private static List<SendResult> results(List<Entry> entries, AppendResult result) {
        int count = entries.size();
        if (result.getPhysicalOffsetsCount() != count || result.getQueueOffsetsCount() != count
                || result.getQueueIdsCount() != count) {
            throw new IllegalStateException("an answer to " + count + " messages has another number of places");
        }
        ByteString storeHost = hostBytes(result.getStoreHost());
        Durability durability = Durability.of(result.getDurabilityValue());
        List<SendResult> results = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            results.add(new SendResult(result.getQueueIds(i), result.getQueueOffsets(i), result.getPhysicalOffsets(i),
                    result.getStoreTimeMs(), durability, entries.get(i).uniqueId, storeHost));
        }
        return results;
    }

    private static ByteString hostBytes(Host host) {
        if (host.getPort() < 0 || host.getPort() > PORT_MAX) {
            throw new IllegalStateException(host.getPort() + " is no port");
        }
        ByteBuffer port = ByteBuffer.allocate(Integer.BYTES).putInt(0, host.getPort());
        return host.getAddress().concat(ByteString.copyFrom(port));
    }

    private void onRefused(Batch batch, ReputException error, long nowNs) {
        isProbing = true;
        if (error.reason().equals(AFTER_REFUSAL) && batch.needsPrevious()) { // As if it had never been sent.
            ready.add(batch);
            return;
        }
        boolean isLeaseOver = error.reason().equals(Route.LEASE_OVER);
        if (isLeaseOver || error.reason().equals(Route.NOT_LEADER)) {
            moved = error;
        }
        if (RetryPolicy.isFollowed(error, batch.followCount)) {
            ready.add(new Batch(batch.entries, batch.attempt, batch.followCount + 1, batch.wasSent));
            return;
        }
        // After LEASE_OVER it is stored, and perhaps dropped by the next leader: as after a broken stream.
        Batch refused = new Batch(batch.entries, batch.attempt, batch.wasSent || isLeaseOver);
        if (!again(refused, error, nowNs)) {
            Split split = split(batch.entries, error);
            settle(failure(refused, split.bad, error));
            split.rest.forEach(entries -> putBack(entries, batch.attempt, refused.wasSent));
        }
    }

    /**
     * Makes a batch ready again after a failed attempt, not before its delay is over. Returns false if no retry is
     * left.
     */
    private boolean again(Batch batch, ReputException error, long nowNs) {
        long delayNs = retry.delayNs(batch.attempt, error);
        if (delayNs == RetryPolicy.GIVE_UP) {
            return false;
        }
        putBack(batch.entries, batch.attempt + 1, batch.wasSent);
        blockedUntilNs = Math.max(blockedUntilNs, nowNs + delayNs);
        return true;
    }

    private void putBack(List<Entry> entries, int attempt, boolean wasSent) {
        if (!entries.isEmpty()) {
            ready.add(new Batch(entries, attempt, wasSent));
        }
    }

    /** Returns the failure of messages of a batch; whether they may be stored all the same depends on its attempts. */
    private static Settlement failure(Batch batch, List<Entry> entries, ReputException error) {
        return new Settlement(entries, null, batch.wasSent ? error.withUnknownOutcome() : error);
    }

    private void settle(Settlement settlement) {
        settled.add(settlement);
        settlement.entries.forEach(entry -> unsettledBytes -= entry.sizeBytes);
    }

    private static Split split(List<Entry> entries, ReputException error) {
        int index = messageIndex(error);
        boolean hasIndex = index >= 0 && index < entries.size();
        if (TOPIC_REASONS.contains(error.reason())) {
            String topic = hasIndex ? entries.get(index).message.getTopic() : error.metadata().get("topic");
            List<Entry> bad = entries.stream().filter(entry -> entry.message.getTopic().equals(topic)).toList();
            if (!bad.isEmpty()) {
                return new Split(bad, List.of(
                        entries.stream().filter(entry -> !entry.message.getTopic().equals(topic)).toList()));
            }
        } else if (hasIndex) {
            List<Entry> rest = new ArrayList<>(entries);
            return new Split(List.of(rest.remove(index)), List.of(rest));
        }
        if (error.code() == Status.Code.INVALID_ARGUMENT && entries.size() > 1) {
            int half = entries.size() / 2;
            return new Split(List.of(), List.of(entries.subList(0, half), entries.subList(half, entries.size())));
        }
        return new Split(entries, List.of());
    }

    /** Returns the index of the message that a refusal names, -1 if it names no message. */
    private static int messageIndex(ReputException error) {
        return Stream.concat(error.fields().stream(), Stream.of(error.field()))
                .map(MESSAGE_INDEX::matcher).filter(Matcher::find)
                .map(match -> Integer.parseInt(match.group(1)))
                .findFirst().orElse(-1);
    }
}
