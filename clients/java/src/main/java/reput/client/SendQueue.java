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
 * The producer's brain: batches, the window, outcomes, retries and splits. No I/O, no clock, no threads.
 *
 * <p>The life of a message: open batch, ready, in flight, settled; or back to ready when it is tried again.
 *
 * <p>Invariants: batches are in flight in the order in which they were handed out, and outcomes come in that order.
 * {@code unsettledBytes} is the size of everything that was added and not settled. Messages go in the order of {@code
 * add}, except for what is retried. While {@code blockedUntilNs} lies ahead, or a refusal says that appends go
 * elsewhere, nothing is handed out.
 *
 * <p>Callers: one at a time, under a lock outside. Outcomes are collected for {@link #popSettled} and not given to
 * their futures here, so that the caller can let go of its lock before. Times are nanoseconds of one clock that begins
 * near 0.
 *
 * <p>One bad message must not fail its neighbours: a refusal that names messages[i] takes that message out and the rest
 * goes again; one that names a topic takes out all messages of it; one that names neither cuts the batch in halves.
 */
final class SendQueue {
    /** Most messages of a batch; as in append_service.proto. */
    static final int BATCH_MESSAGE_COUNT_MAX = 32_768;
    /** What {@link #waitNs} returns if there is nothing to wait for. */
    static final long FOREVER = Long.MAX_VALUE;

    private static final int MESSAGES_FIELD = AppendStreamRequest.MESSAGES_FIELD_NUMBER;
    private static final int PORT_MAX = 65_535;
    private static final Set<String> TOPIC_REASONS =
            Set.of("TOPIC_NOT_FOUND", "TOPIC_FORBIDDEN", "TOPIC_SET_APART", "BAD_TOPIC_NAME");
    private static final Pattern MESSAGE_INDEX = Pattern.compile("messages\\[(\\d{1,9})]");

    private final ProducerOptions options;
    private final RetryPolicy retry;
    private final PriorityQueue<Batch> ready = new PriorityQueue<>(Comparator.comparingLong(Batch::sequence));
    private final ArrayDeque<Batch> inFlight = new ArrayDeque<>();
    private List<Entry> open = new ArrayList<>();
    private int openSizeBytes;
    private long openUntilNs;
    private long nextSequence;
    private long unsettledBytes;
    private long blockedUntilNs;
    private ReputException moved;
    private List<Settlement> settled = new ArrayList<>();

    /** A message on its way. {@code sequence} is its place among all that were added. */
    record Entry(AppendMessage message, int sizeBytes, String uniqueId, CompletableFuture<SendResult> future,
            long sequence) {}

    /**
     * Messages that travel together. {@code followCount}: how often in a row it went to the leader that an answer named,
     * which is no failed attempt. {@code wasSent}: an attempt that failed may have stored it.
     */
    record Batch(List<Entry> entries, int attempt, int followCount, boolean wasSent) {
        Batch(List<Entry> entries, int attempt, boolean wasSent) {
            this(entries, attempt, 0, wasSent);
        }

        long sequence() {
            return entries.get(0).sequence;
        }

        AppendStreamRequest toRequest(Durability durability) {
            AppendStreamRequest.Builder request = AppendStreamRequest.newBuilder();
            entries.forEach(entry -> request.addMessages(entry.message));
            return request.setDurabilityValue(durability.ordinal()).build();
        }
    }

    /** The outcomes of several messages: results in their order, or the error of all of them. */
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

    /** What a refusal makes of a batch: the messages that it is about, and the others in batches to send again. */
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

    /** Returns whether a message of this size may be added now. One message may always enter an empty queue. */
    boolean hasRoom(int sizeBytes) {
        return unsettledBytes == 0 || unsettledBytes + sizeBytes <= options.windowBytes();
    }

    /** Adds a message. Returns whether there is something new to wait for or send: a batch began or became ready. */
    boolean add(AppendMessage message, String uniqueId, CompletableFuture<SendResult> future, long nowNs) {
        int sizeBytes = sizeBytes(message);
        if (openSizeBytes + sizeBytes > options.batchSizeBytes()) {
            closeBatch();
        }
        boolean isNews = open.isEmpty();
        if (isNews) {
            openUntilNs = nowNs + options.linger().toNanos();
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

    /** Makes what was collected ready, whatever its age. */
    void closeBatch() {
        if (!open.isEmpty()) {
            ready.add(new Batch(open, 0, false));
            open = new ArrayList<>(open.size());
            openSizeBytes = 0;
        }
    }

    /** Pops the next batch to send, null if there is none yet. It is in flight from now on. */
    Batch pop(long nowNs) {
        if (moved != null || nowNs < blockedUntilNs) {
            return null;
        }
        if (ready.isEmpty() && nowNs >= openUntilNs) {
            closeBatch();
        }
        Batch batch = ready.poll();
        if (batch != null) {
            inFlight.add(batch);
        }
        return batch;
    }

    /**
     * Returns nanoseconds until {@link #pop} may have something; {@link #FOREVER} if something has to happen before.
     */
    long waitNs(long nowNs) {
        if (moved != null || (ready.isEmpty() && open.isEmpty())) {
            return FOREVER;
        }
        return Math.max(0, Math.max(ready.isEmpty() ? openUntilNs : 0, blockedUntilNs) - nowNs);
    }

    /**
     * Applies the server's answers to the batches in flight, oldest first.
     *
     * <p>Throws IllegalStateException for an answer that can't be right; its batch is still in flight then.
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
            } else {
                ReputException error = ReputException.of(outcome.getError());
                inFlight.remove();
                onRefused(batch, error, nowNs);
            }
        }
    }

    /**
     * Returns the refusal that says that appends go elsewhere, once nothing is in flight: then the stream has to end.
     */
    ReputException moved() {
        return inFlight.isEmpty() ? moved : null;
    }

    /** Sends the batches in flight again after the end of the stream, or fails them if they may not be. */
    void onBroken(ReputException error, boolean wasSent, long nowNs) {
        moved = null;
        for (Batch batch : inFlight) {
            Batch failed = new Batch(batch.entries, batch.attempt, batch.wasSent || wasSent);
            if (!again(failed, error, nowNs)) {
                settle(failure(failed, failed.entries, error));
            }
        }
        inFlight.clear();
    }

    /** Gives up on everything, for a producer that is closed without waiting. */
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
        boolean isLeaseOver = error.reason().equals(Route.LEASE_OVER);
        if (isLeaseOver || error.reason().equals(Route.NOT_LEADER)) {
            moved = error;
        }
        if (RetryPolicy.isFollowed(error, batch.followCount)) {
            ready.add(new Batch(batch.entries, batch.attempt, batch.followCount + 1, batch.wasSent));
            return;
        }
        // After LEASE_OVER it is stored, and perhaps given up by the next leader: as after a stream that broke.
        Batch refused = new Batch(batch.entries, batch.attempt, batch.wasSent || isLeaseOver);
        if (!again(refused, error, nowNs)) {
            Split split = split(batch.entries, error);
            settle(failure(refused, split.bad, error));
            split.rest.forEach(entries -> putBack(entries, batch.attempt, refused.wasSent));
        }
    }

    /**
     * Makes a batch ready again after a failed attempt, not before its delay is over. Returns false if it may not be.
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

    /**
     * Returns the failure of some messages of a batch; whether they may be stored all the same depends on its attempts.
     */
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

    /** Returns which message a refusal is about, -1 if it does not say. */
    private static int messageIndex(ReputException error) {
        return Stream.concat(error.fields().stream(), Stream.of(error.field()))
                .map(MESSAGE_INDEX::matcher).filter(Matcher::find)
                .map(match -> Integer.parseInt(match.group(1)))
                .findFirst().orElse(-1);
    }
}
