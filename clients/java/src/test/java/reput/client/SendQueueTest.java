// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.rpc.Status;
import io.grpc.Status.Code;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import reput.commitlog.v1.AppendMessage;
import reput.commitlog.v1.AppendOutcome;
import reput.commitlog.v1.AppendResult;
import reput.common.v1.Host;

/** The rules of the producer, without time and network. Each message is named by its body. */
class SendQueueTest {
    private static final long LINGER_NS = 5_000_000;
    private static final long HOUR_NS = 3_600_000_000_000L;
    private static final ProducerOptions OPTIONS = ProducerOptions.DEFAULT.withRetry(RetryPolicy.DEFAULT);

    private final Map<String, CompletableFuture<SendResult>> futures = new LinkedHashMap<>();
    private SendQueue queue = new SendQueue(OPTIONS);
    private long nowNs;

    private boolean add(String body) {
        return add("topic", body);
    }

    private boolean add(String topic, String body) {
        CompletableFuture<SendResult> future = new CompletableFuture<>();
        futures.put(body, future);
        return queue.add(message(topic, body), "id-" + body, future, nowNs);
    }

    private static AppendMessage message(String topic, String body) {
        return AppendMessage.newBuilder().setTopic(topic).setBody(ByteString.copyFromUtf8(body)).build();
    }

    private static int size(String body) {
        return SendQueue.sizeBytes(message("topic", body));
    }

    /** Sends all messages, and returns the bodies by batch. */
    private List<List<String>> popAll() {
        queue.closeBatch();
        List<List<String>> batches = new ArrayList<>();
        for (SendQueue.Batch batch; (batch = queue.pop(nowNs)) != null;) {
            batches.add(bodies(batch));
        }
        return batches;
    }

    /** Sends all messages, each batch after the batch before is stored, and returns the bodies by batch. */
    private List<List<String>> sendAll() {
        queue.closeBatch();
        List<List<String>> batches = new ArrayList<>();
        for (SendQueue.Batch batch; (batch = queue.pop(nowNs)) != null;) {
            batches.add(bodies(batch));
            answer(stored(batch.entries().size(), 0));
        }
        return batches;
    }

    private static List<String> bodies(SendQueue.Batch batch) {
        return batch.entries().stream().map(entry -> entry.message().getBody().toStringUtf8()).toList();
    }

    private static AppendOutcome stored(int count, long firstOffset) {
        ByteString address = ByteString.copyFrom(new byte[] {127, 0, 0, 1});
        AppendResult.Builder result = AppendResult.newBuilder().setStoreTimeMs(99).setDurabilityValue(2)
                .setStoreHost(Host.newBuilder().setAddress(address).setPort(10911));
        for (int i = 0; i < count; i++) {
            result.addPhysicalOffsets(1000 + firstOffset + i).addQueueOffsets(firstOffset + i).addQueueIds(7);
        }
        return AppendOutcome.newBuilder().setResult(result).build();
    }

    private static AppendOutcome refused(Status error) {
        return AppendOutcome.newBuilder().setError(error).build();
    }

    private void answer(AppendOutcome... outcomes) {
        queue.onOutcomes(List.of(outcomes), nowNs);
        deliver();
    }

    private void refuse(Code code, String reason) {
        answer(refused(Errors.status(code, reason, Map.of())));
    }

    private void breakStream(boolean wasSent) {
        queue.onBroken(Errors.unavailable(), wasSent, nowNs);
        deliver();
    }

    private void deliver() {
        queue.popSettled().forEach(SendQueue.Settlement::deliver);
    }

    private ReputException errorOf(String body) {
        return ReputException.of(assertThrows(CompletionException.class, () -> futures.get(body).getNow(null)));
    }

    private long failedCount() {
        return futures.values().stream().filter(CompletableFuture::isCompletedExceptionally).count();
    }

    @Test
    void aBatchWaitsForCompanyAsLongAsItsFirstMessageLingers() {
        assertTrue(add("a"));
        assertEquals(LINGER_NS, queue.waitNs(nowNs));
        nowNs = LINGER_NS - 1;
        assertFalse(add("b"), "nothing new to wait for");
        assertNull(queue.pop(nowNs));
        nowNs = LINGER_NS;
        assertEquals(0, queue.waitNs(nowNs));
        assertEquals(List.of("a", "b"), bodies(queue.pop(nowNs)));
        assertEquals(SendQueue.FOREVER, queue.waitNs(nowNs));
    }

    @Test
    void aCallerThatWaitsEndsTheLingerOfItsBatchOnly() {
        assertFalse(queue.hurry(queue.batchNumber()));
        add("a");
        long first = queue.batchNumber();
        assertFalse(queue.hurry(first + 1));
        assertEquals(LINGER_NS, queue.waitNs(nowNs));
        assertTrue(queue.hurry(first));
        assertFalse(queue.hurry(first), "the sender looks again only once");
        assertEquals(0, queue.waitNs(nowNs));
        assertFalse(add("b"));
        assertEquals(first, queue.batchNumber());
        assertEquals(List.of("a", "b"), bodies(queue.pop(nowNs)));
        add("c");
        assertFalse(queue.hurry(first));
        assertNull(queue.pop(nowNs), "the next batch lingers");
        assertTrue(queue.hurry(queue.batchNumber()));
        assertEquals(List.of("c"), bodies(queue.pop(nowNs)));
    }

    @Test
    void aBatchOfFullSizeGoesAtOnce() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(2 * size("a")));
        add("a");
        assertTrue(add("b"), "the batch is ready");
        assertEquals(List.of("a", "b"), bodies(queue.pop(nowNs)));
    }

    @Test
    void whatDoesNotFitBeginsTheNextBatch() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(2 * size("a") + 1));
        add("a");
        assertTrue(add("long"), "a batch is ready, and another one begins");
        assertEquals(List.of("a"), bodies(queue.pop(nowNs)));
        assertNull(queue.pop(nowNs));
    }

    @Test
    void aBatchHasNoMoreMessagesThanTheServerTakes() {
        for (int i = 0; i <= SendQueue.BATCH_MESSAGE_COUNT_MAX; i++) {
            queue.add(message("t", ""), "", new CompletableFuture<>(), nowNs);
        }
        assertEquals(SendQueue.BATCH_MESSAGE_COUNT_MAX, queue.pop(nowNs).entries().size());
        assertNull(queue.pop(nowNs));
    }

    @Test
    void theWindowBoundsWhatHasNoOutcome() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(1).withWindowBytes(2 * size("a")));
        add("a");
        assertTrue(queue.hasRoom(size("b")));
        add("b");
        assertFalse(queue.hasRoom(1));
        popAll();
        answer(stored(1, 0));
        assertTrue(queue.hasRoom(size("c")), "an outcome makes room");
        assertFalse(queue.isIdle());
        answer(stored(1, 1));
        assertTrue(queue.isIdle());
        assertTrue(queue.hasRoom(Integer.MAX_VALUE), "one message may always enter an empty window");
    }

    @Test
    void aResultHasAllPlacesOfItsMessage() {
        add("a");
        add("b");
        popAll();
        answer(stored(2, 5));
        SendResult result = futures.get("b").join();
        assertEquals(new SendResult(7, 6, 1006, 99, Durability.LOCAL_DISK, "id-b", result.storeHost()), result);
        assertEquals("7F00000100002A9F00000000000003EE", result.offsetMessageId());
    }

    @Test
    void outcomesBelongToTheOldestBatchesInFlight() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(1));
        add("a");
        add("b");
        popAll();
        answer(stored(1, 0), refused(Errors.status(Code.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", Map.of())));
        assertEquals(0, futures.get("a").join().queueOffset());
        assertEquals("MESSAGE_TOO_LARGE", errorOf("b").reason());
    }

    @Test
    void answersThatCantBeRightAreNoticed() {
        assertThrows(IllegalStateException.class, () -> answer(stored(1, 0)), "nothing was sent");
        add("a");
        popAll();
        assertThrows(IllegalStateException.class, () -> answer(stored(2, 0)), "two places for one message");
        queue.onBroken(ReputException.nonsense(new IllegalStateException("two places")), true, nowNs);
        deliver();
        assertTrue(errorOf("a").isOutcomeUnknown());
    }

    @Test
    void aRefusedMessageFailsAlone() {
        List.of("a", "b", "c").forEach(this::add);
        popAll();
        Status error = Errors.status(Code.INVALID_ARGUMENT, "QUEUE_OUT_OF_RANGE", Map.of("value", "9"));
        answer(refused(Errors.withField(error, "messages[1].queue_id")));
        assertEquals("9", errorOf("b").value());
        assertEquals("messages[1].queue_id", errorOf("b").field());
        assertEquals(List.of(List.of("a", "c")), popAll(), "the rest goes again at once");
    }

    @Test
    void theFieldMayAlsoBeInTheMetadata() {
        List.of("a", "b").forEach(this::add);
        popAll();
        answer(refused(Errors.status(Code.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", Map.of("field", "messages[0].body"))));
        assertEquals("MESSAGE_TOO_LARGE", errorOf("a").reason());
        assertEquals(List.of(List.of("b")), popAll());
    }

    @Test
    void aRefusedTopicTakesAllOfItsMessagesOut() {
        add("bad", "a");
        add("good", "b");
        add("bad", "c");
        popAll();
        answer(refused(Errors.withField(Errors.status(Code.INVALID_ARGUMENT, "BAD_TOPIC_NAME", Map.of()),
                "messages[2].topic")));
        assertEquals(2, failedCount());
        assertEquals(List.of(List.of("b")), popAll());
    }

    @Test
    void aRefusedTopicMayBeNamedByTheMetadata() {
        add("bad", "a");
        add("good", "b");
        popAll();
        answer(refused(Errors.status(Code.NOT_FOUND, "TOPIC_NOT_FOUND", Map.of("topic", "bad"))));
        assertEquals("TOPIC_NOT_FOUND", errorOf("a").reason());
        assertEquals(List.of(List.of("b")), popAll());
    }

    @Test
    void aRefusalThatNamesNothingCutsTheBatchInHalves() {
        List.of("a", "b", "c").forEach(this::add);
        popAll();
        refuse(Code.INVALID_ARGUMENT, "BATCH_TOO_LARGE");
        add("d");
        assertEquals(List.of("a"), bodies(queue.pop(nowNs)));
        refuse(Code.INVALID_ARGUMENT, "BATCH_TOO_LARGE");
        assertEquals(List.of(List.of("b", "c"), List.of("d")), sendAll(), "in order, before younger ones");
        assertEquals("BATCH_TOO_LARGE", errorOf("a").reason());
        assertEquals(1, failedCount());
    }

    @Test
    void anIndexOutsideOfTheBatchCutsItInHalves() {
        List.of("a", "b").forEach(this::add);
        popAll();
        Status error = Errors.status(Code.INVALID_ARGUMENT, "BAD_ARGUMENT", Map.of());
        answer(refused(Errors.withField(error, "messages[2]")));
        assertEquals(List.of(List.of("a"), List.of("b")), sendAll());
    }

    @Test
    void anyOtherRefusalFailsTheBatch() {
        List.of("a", "b").forEach(this::add);
        popAll();
        refuse(Code.FAILED_PRECONDITION, "STORE_SEALED");
        assertEquals(2, failedCount());
        assertFalse(errorOf("a").isOutcomeUnknown());
        assertTrue(queue.isIdle());
    }

    @Test
    void aPassingRefusalIsTriedAgainAfterItsDelay() {
        add("a");
        popAll();
        answer(refused(Errors.withRetryAfter(Errors.status(Code.RESOURCE_EXHAUSTED, "STORE_FULL", Map.of()), 3)));
        add("b");
        assertEquals(List.of(), popAll(), "nothing overtakes it");
        assertEquals(Duration.ofSeconds(3).toNanos(), queue.waitNs(nowNs));
        nowNs += Duration.ofSeconds(3).toNanos();
        assertEquals(List.of(List.of("a"), List.of("b")), sendAll());
    }

    @Test
    void batchesBehindARefusedBatchWaitForIt() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(1).withRetry(RetryPolicy.DEFAULT.withRetries(1)));
        List.of("a", "b", "c", "d").forEach(this::add);
        assertFalse(queue.pop(nowNs).needsPrevious());
        assertTrue(queue.pop(nowNs).needsPrevious());
        assertTrue(queue.pop(nowNs).needsPrevious());
        refuse(Code.UNAVAILABLE, "RECOVERING");
        nowNs += HOUR_NS;
        for (int behind = 0; behind < 2; behind++) {
            assertNull(queue.pop(nowNs), "batches are in flight");
            assertEquals(SendQueue.FOREVER, queue.waitNs(nowNs));
            refuse(Code.ABORTED, "AFTER_REFUSAL");
        }
        SendQueue.Batch again = queue.pop(nowNs);
        assertEquals(List.of("a"), bodies(again));
        assertFalse(again.needsPrevious());
        assertEquals(1, again.attempt());
        assertNull(queue.pop(nowNs), "none is stored yet");
        answer(stored(1, 0));
        SendQueue.Batch next = queue.pop(nowNs);
        SendQueue.Batch last = queue.pop(nowNs);
        assertEquals(List.of(List.of("b"), List.of("c")), List.of(bodies(next), bodies(last)));
        assertFalse(next.needsPrevious());
        assertTrue(last.needsPrevious());
        assertEquals(0, last.attempt(), "it counts no attempt");
        refuse(Code.FAILED_PRECONDITION, "STORE_SEALED");
        refuse(Code.ABORTED, "AFTER_REFUSAL");
        assertEquals(List.of(List.of("c"), List.of("d")), sendAll());
        assertEquals(1, failedCount());
    }

    /** A server that refuses all batches as behind a refused batch is asked once: the refusal contradicts the request. */
    @Test
    void aBatchThatNeedsNoOtherIsNotSentAgain() {
        add("a");
        assertEquals(1, popAll().size());
        refuse(Code.ABORTED, "AFTER_REFUSAL");
        nowNs += HOUR_NS;
        assertNull(queue.pop(nowNs));
        assertEquals("AFTER_REFUSAL", errorOf("a").reason());
    }

    @Test
    void retriesEnd() {
        queue = new SendQueue(OPTIONS.withRetry(RetryPolicy.DEFAULT.withRetries(2)));
        add("a");
        for (int attempt = 0; attempt < 3; attempt++) {
            assertEquals(1, popAll().size());
            refuse(Code.UNAVAILABLE, "RECOVERING");
            nowNs += HOUR_NS;
        }
        assertEquals("RECOVERING", errorOf("a").reason());
        assertFalse(errorOf("a").isOutcomeUnknown());
    }

    @Test
    void aBrokenStreamIsSentAgainInOrder() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(1));
        List.of("a", "b").forEach(this::add);
        popAll();
        add("c");
        breakStream(true);
        assertNull(queue.pop(nowNs), "not before the delay is over");
        nowNs += HOUR_NS;
        assertEquals(List.of(List.of("a"), List.of("b"), List.of("c")), sendAll());
        assertEquals(0, failedCount());
    }

    @Test
    void withoutRetriesABrokenStreamLeavesTheOutcomeUnknown() {
        queue = new SendQueue(OPTIONS.withRetry(RetryPolicy.NONE));
        add("a");
        popAll();
        breakStream(true);
        assertTrue(errorOf("a").isOutcomeUnknown());
        assertEquals(Code.UNAVAILABLE, errorOf("a").code());
    }

    @Test
    void whatNeverLeftHasAKnownOutcome() {
        queue = new SendQueue(OPTIONS.withRetry(RetryPolicy.NONE));
        add("a");
        popAll();
        breakStream(false);
        assertFalse(errorOf("a").isOutcomeUnknown());
    }

    @Test
    void anAttemptThatMayHaveArrivedIsNotForgotten() {
        queue = new SendQueue(OPTIONS.withRetry(RetryPolicy.DEFAULT.withRetries(1)));
        add("a");
        popAll();
        breakStream(true);
        nowNs += HOUR_NS;
        popAll();
        breakStream(false);
        assertTrue(errorOf("a").isOutcomeUnknown());
    }

    @Test
    void aStreamThatFailsForGoodFailsWhatIsInFlightAlone() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(1));
        add("a");
        popAll();
        add("b");
        queue.onBroken(new ReputException(Code.UNAUTHENTICATED, "no token"), true, nowNs);
        deliver();
        assertEquals(Code.UNAUTHENTICATED, errorOf("a").code());
        assertEquals(List.of(List.of("b")), popAll());
    }

    @Test
    void aNewLeaderEndsTheStreamOnceNothingIsInFlight() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(1));
        List.of("a", "b").forEach(this::add);
        popAll();
        answer(refused(Errors.status(Code.UNAVAILABLE, "NOT_LEADER", Map.of("leader", "other:1"))));
        assertNull(queue.moved(), "b is in flight");
        nowNs += HOUR_NS;
        assertNull(queue.pop(nowNs), "nothing more goes to the old address");
        assertEquals(SendQueue.FOREVER, queue.waitNs(nowNs));
        refuse(Code.UNAVAILABLE, "NOT_LEADER");
        assertNotNull(queue.moved());
        queue.onBroken(queue.moved(), true, nowNs);
        nowNs += HOUR_NS;
        assertNull(queue.moved());
        assertEquals(List.of(List.of("a"), List.of("b")), sendAll());
    }

    @Test
    void aLeaderThatIsNamedIsFollowedAtOnceButNotForEver() {
        queue = new SendQueue(OPTIONS.withRetry(RetryPolicy.NONE));
        add("a");
        for (int i = 0; i < RetryPolicy.FOLLOWS_MAX; i++) {
            assertEquals(List.of(List.of("a")), popAll());
            answer(refused(Errors.status(Code.UNAVAILABLE, "NOT_LEADER", Map.of("leader", "other:1"))));
            queue.onBroken(queue.moved(), true, nowNs);
        }
        assertEquals(List.of(List.of("a")), popAll());
        answer(refused(Errors.status(Code.UNAVAILABLE, "NOT_LEADER", Map.of("leader", "other:1"))));
        assertEquals("NOT_LEADER", errorOf("a").reason());
        assertFalse(errorOf("a").isOutcomeUnknown());
    }

    @Test
    void aLeaseThatIsOverIsAsAStreamThatBroke() {
        add("a");
        popAll();
        refuse(Code.UNAVAILABLE, "LEASE_OVER");
        queue.onBroken(queue.moved(), true, nowNs);
        nowNs += HOUR_NS;
        assertEquals(List.of(List.of("a")), popAll(), "it is sent again");
        queue = new SendQueue(OPTIONS.withRetry(RetryPolicy.NONE));
        add("b");
        popAll();
        refuse(Code.UNAVAILABLE, "LEASE_OVER");
        assertTrue(errorOf("b").isOutcomeUnknown());
        assertEquals("LEASE_OVER", errorOf("b").reason());
        assertNotNull(queue.moved());
        assertTrue(queue.isIdle());
    }

    @Test
    void givingUpSettlesEverything() {
        queue = new SendQueue(OPTIONS.withBatchSizeBytes(2 * size("a")));
        List.of("a", "b").forEach(this::add);
        popAll();
        List.of("c", "d", "e").forEach(this::add);
        queue.failAll(new ReputException(Code.CANCELLED, "the producer was closed"));
        deliver();
        assertEquals(5, failedCount());
        assertTrue(errorOf("a").isOutcomeUnknown());
        assertFalse(errorOf("c").isOutcomeUnknown());
        assertTrue(queue.isIdle());
        assertEquals(SendQueue.FOREVER, queue.waitNs(nowNs));
    }

    @Test
    void outcomesArePoppedOnce() {
        add("a");
        popAll();
        queue.onOutcomes(List.of(stored(1, 0)), nowNs);
        assertFalse(futures.get("a").isDone(), "the queue itself settles no future");
        assertEquals(1, queue.popSettled().size());
        assertEquals(0, queue.popSettled().size());
    }
}
