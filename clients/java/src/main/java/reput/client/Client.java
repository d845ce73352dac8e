// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.ClientCalls;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import reput.indexer.v1.IndexServiceGrpc;
import reput.indexer.v1.KeyMatches;
import reput.indexer.v1.PullRequest;
import reput.indexer.v1.QueryByIdRequest;
import reput.indexer.v1.QueryByKeyRequest;
import reput.indexer.v1.QueryByKeysRequest;
import reput.indexer.v1.QueryByTimeRequest;
import reput.indexer.v1.QueryServiceGrpc;
import reput.indexer.v1.QueueServiceGrpc;
import reput.indexer.v1.WaitIndexedRequest;

/**
 * A connection to a store. Close it.
 *
 * <p>A call that fails for a temporary reason is retried within the time-out. All methods throw {@link ReputException}.
 * Any thread may use a client.
 */
public final class Client implements AutoCloseable {
    /** As in query_service.proto. */
    private static final int KEY_COUNT_MAX = 1_024;

    private final ClientOptions options;
    private final Connections connections;
    private final Service commitlog;
    private final Service indexer;
    private final Set<Producer> producers = ConcurrentHashMap.newKeySet();
    private final Set<Consumer> consumers = ConcurrentHashMap.newKeySet();
    private final CountDownLatch closed = new CountDownLatch(1);

    private Client(ClientOptions options) {
        this.options = options;
        this.connections = new Connections(credentials(options));
        this.commitlog = new Service(ClientOptions.targets(options.commitlog()), connections, options.token());
        this.indexer = new Service(ClientOptions.targets(options.indexer()), connections, options.token());
    }

    /** Returns a client with the options of {@link ClientOptions#load}. */
    public static Client connect() {
        return connect(ClientOptions.load());
    }

    /**
     * Returns a client for the store at this address, {@code connect("localhost:8081")}: that of its gateway, which
     * serves all APIs. The other options are those of {@link ClientOptions#load}.
     */
    public static Client connect(String store) {
        return connect(ClientOptions.load().at(store));
    }

    /**
     * Returns a client. Connections are made at their first use. Services at the same address share one.
     *
     * <p>Throws UncheckedIOException or IllegalArgumentException for a certificate or key that can't be read.
     */
    public static Client connect(ClientOptions options) {
        return new Client(options);
    }

    /** Returns a new producer with {@link ProducerOptions#DEFAULT}. */
    public Producer producer() {
        return producer(ProducerOptions.DEFAULT);
    }

    /**
     * Returns a new producer. The client closes it if you do not. Throws IllegalArgumentException for a window that is
     * smaller than a batch.
     */
    public Producer producer(ProducerOptions producerOptions) {
        Producer producer = new Producer(this, producerOptions.checked(options.retry()));
        if (!remember(producers, producer)) {
            producer.close();
            throw closedError();
        }
        return producer;
    }

    /**
     * Returns a new consumer of a topic. The client closes it if you do not.
     *
     * <p>Throws ReputException with the reason TOPIC_NOT_FOUND for a topic that does not exist, unless its queues are
     * named.
     */
    public Consumer consumer(String topic, ConsumerOptions consumerOptions) {
        Consumer consumer = new Consumer(this, topic, consumerOptions);
        if (!remember(consumers, consumer)) {
            throw closedError(); // It has no streams yet.
        }
        return consumer;
    }

    /** Reads up to 32 messages of a queue from a queue offset on. Does not wait for messages. */
    public PullResult pull(String topic, int queueId, long queueOffset) {
        return pull(topic, queueId, queueOffset, 0, "*", Duration.ZERO);
    }

    /**
     * Reads messages of a queue. An offset outside of the queue is a status of the result, not an error.
     *
     * @param topic name of the topic
     * @param queueId queue within the topic, from 0
     * @param queueOffset first entry to read
     * @param messageCountMax most messages in the result, at most 4,096; 0 means the store's default, 32
     * @param tags {@code *} for all, or tags separated by {@code ||}
     * @param waitTime how long to wait for the first message, at most 30 s; zero answers at once
     */
    public PullResult pull(String topic, int queueId, long queueOffset, int messageCountMax, String tags,
            Duration waitTime) {
        PullRequest request = PullRequest.newBuilder()
                .setTopic(topic).setQueueId(queueId).setQueueOffset(queueOffset)
                .setMessageCountMax(messageCountMax).setTagExpression(tags).setWantsRecords(true)
                .setWait(com.google.protobuf.Duration.newBuilder()
                        .setSeconds(waitTime.getSeconds()).setNanos(waitTime.getNano()))
                .build();
        return PullResult.of(call(QueueServiceGrpc.getPullMethod(), request, waitTime));
    }

    /** Returns the messages of a topic with a key, newest first. Each iteration queries anew, page by page. */
    public Iterable<Message> queryByKey(String topic, String key) {
        return queryByKey(topic, key, TimeRange.ALL);
    }

    /** Returns the messages of a topic with a key that were stored within a range of times, newest first. */
    public Iterable<Message> queryByKey(String topic, String key, TimeRange times) {
        QueryByKeyRequest.Builder request =
                QueryByKeyRequest.newBuilder().setTopic(topic).setKey(key).setWantsRecords(true);
        times.apply(request::setStartTime, request::setEndTime);
        return () -> Page.items(token -> page(request.clone().setPageToken(token).build()));
    }

    private Page<Message> page(QueryByKeyRequest request) {
        var page = call(QueryServiceGrpc.getQueryByKeyMethod(), request);
        return new Page<>(StoredRecord.messages(page.getMessagesList(), page.getRecords(), page.getRecordCount()),
                page.getNextPageToken());
    }

    /** Returns the messages of a topic with each of many keys, as the other method does, of all times. */
    public Iterable<KeyMessages> queryByKeys(String topic, Collection<String> keys) {
        return queryByKeys(topic, keys, TimeRange.ALL);
    }

    /**
     * Returns each of many keys once, in their order, with the messages that have it and were stored within a range of
     * times. A call asks for 1,024 keys. Each iteration queries anew.
     */
    public Iterable<KeyMessages> queryByKeys(String topic, Collection<String> keys, TimeRange times) {
        List<String> distinct = List.copyOf(new LinkedHashSet<>(keys));
        QueryByKeysRequest.Builder request = QueryByKeysRequest.newBuilder().setTopic(topic).setWantsRecords(true);
        times.apply(request::setStartTime, request::setEndTime);
        return () -> Page.items(token -> {
            int first = token.isEmpty() ? 0 : Integer.parseInt(token);
            List<String> asked = distinct.subList(first, Math.min(distinct.size(), first + KEY_COUNT_MAX));
            if (asked.isEmpty()) {
                return new Page<>(List.of(), "");
            }
            var answer = call(QueryServiceGrpc.getQueryByKeysMethod(), request.clone().addAllKeys(asked).build());
            int count = answer.getMatchesCount();
            if (count == 0 || count > asked.size()) {
                throw new ReputException(Status.Code.INTERNAL, "the answer does not fit the keys");
            }
            List<KeyMessages> found = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                found.add(keyMessages(topic, asked.get(number), answer.getMatches(number), times));
            }
            int next = first + count;
            return new Page<>(found, next == distinct.size() ? "" : Integer.toString(next));
        });
    }

    private KeyMessages keyMessages(String topic, String key, KeyMatches matches, TimeRange times) {
        if (!matches.getErrorReason().isEmpty()) {
            return new KeyMessages(key, List.of(), ReputException.ofKey(matches));
        }
        List<Message> messages = new ArrayList<>(
                StoredRecord.messages(matches.getMessagesList(), matches.getRecords(), matches.getRecordCount()));
        QueryByKeyRequest.Builder request =
                QueryByKeyRequest.newBuilder().setTopic(topic).setKey(key).setWantsRecords(true);
        times.apply(request::setStartTime, request::setEndTime);
        String token = matches.getNextPageToken();
        while (!token.isEmpty()) {
            Page<Message> page = page(request.setPageToken(token).build());
            messages.addAll(page.items());
            token = page.nextToken();
        }
        return new KeyMessages(key, messages, null);
    }

    /** Returns the messages of all queues of a topic that were stored within a range of times, by queue and offset. */
    public Iterable<Message> queryByTime(String topic, TimeRange times) {
        return queryByTime(QueryByTimeRequest.newBuilder().setTopic(topic), times);
    }

    /** Returns the messages of a queue that were stored within a range of times, by queue offset. */
    public Iterable<Message> queryByTime(String topic, int queueId, TimeRange times) {
        return queryByTime(QueryByTimeRequest.newBuilder().setTopic(topic).setQueueId(queueId), times);
    }

    /** Returns the message with an offset message id. Throws with the reason MESSAGE_NOT_FOUND. */
    public Message queryById(String offsetMessageId) {
        return queryById("", offsetMessageId);
    }

    /** Returns the newest message of a topic with a unique id. Throws with the reason MESSAGE_NOT_FOUND. */
    public Message queryById(String topic, String uniqueId) {
        QueryByIdRequest request = QueryByIdRequest.newBuilder().setTopic(topic).setMessageId(uniqueId).build();
        return new Message(call(QueryServiceGrpc.getQueryByIdMethod(), request).getMessage());
    }

    /**
     * Returns when a message that was just sent is indexed, so that queries find it: some milliseconds after it was
     * stored. After that a delayed message still waits for its time. For several messages, wait for the message with
     * the largest physical offset. Throws ReputException with the reason RECOVERING if the indexes do not reach it
     * within the client's time-out.
     */
    public void waitIndexed(SendResult sent) {
        call(IndexServiceGrpc.getWaitIndexedMethod(),
                WaitIndexedRequest.newBuilder().setPhysicalOffset(sent.physicalOffset()).build());
    }

    /**
     * Makes any other call with a single request and a single answer to the CommitLog or the Indexer, with retries and
     * time-out: {@code client.call(TopicServiceGrpc.getGetTopicMethod(), request)}.
     *
     * <p>A call whose answer is lost is repeated, and may then be executed twice; if this is a problem use a stub of
     * {@link #commitlog} or {@link #indexer}.
     */
    public <Q, A> A call(MethodDescriptor<Q, A> method, Q request) {
        return call(method, request, Duration.ZERO);
    }

    /** The channel to the CommitLog, for stubs. It follows the leader, and does not retry. */
    public Channel commitlog() {
        return commitlog;
    }

    /** The channel to the Indexer, for stubs. After a failure it uses the next address; it does not retry. */
    public Channel indexer() {
        return indexer;
    }

    /**
     * Closes producers (waits for their messages), then consumers and connections. May be repeated.
     *
     * <p>Throws IllegalStateException in a callback of a future of {@code send}, which would wait for itself.
     */
    @Override
    public void close() {
        List.copyOf(producers).forEach(Producer::close);
        synchronized (this) {
            closed.countDown();
        }
        List.copyOf(producers).forEach(Producer::close); // Producers that were made meanwhile.
        List.copyOf(consumers).forEach(Consumer::close);
        connections.close();
    }

    ClientOptions options() {
        return options;
    }

    /** Returns the route of appends. */
    Route commitlogRoute() {
        return commitlog.route();
    }

    /** Records that a producer or consumer was closed. */
    void forget(AutoCloseable part) {
        producers.remove(part);
        consumers.remove(part);
    }

    private <Q, A> A call(MethodDescriptor<Q, A> method, Q request, Duration extraTimeout) {
        Service service = service(method.getServiceName());
        long endNs = System.nanoTime() + options.timeout().plus(extraTimeout).toNanos();
        for (int attempt = 0, followCount = 0;;) {
            CallOptions call = CallOptions.DEFAULT.withDeadlineAfter(endNs - System.nanoTime(), TimeUnit.NANOSECONDS);
            try {
                return ClientCalls.blockingUnaryCall(service, method, call, request);
            } catch (StatusRuntimeException failure) {
                ReputException error = ReputException.of(failure);
                if (RetryPolicy.isFollowed(error, followCount) && System.nanoTime() < endNs) {
                    followCount++;
                    continue;
                }
                followCount = 0;
                long delayNs = options.retry().delayNs(attempt++, error);
                if (delayNs == RetryPolicy.GIVE_UP || delayNs >= endNs - System.nanoTime()) {
                    throw error;
                }
                pause(delayNs);
            }
        }
    }

    private Service service(String name) {
        if (name.startsWith("reput.commitlog.")) {
            return commitlog;
        }
        if (name.startsWith("reput.indexer.")) {
            return indexer;
        }
        throw new IllegalArgumentException(name + " is neither the CommitLog's nor the Indexer's");
    }

    private void pause(long delayNs) {
        try {
            if (closed.await(delayNs, TimeUnit.NANOSECONDS)) {
                throw closedError();
            }
        } catch (InterruptedException interrupted) {
            throw ReputException.interrupted();
        }
    }

    private Iterable<Message> queryByTime(QueryByTimeRequest.Builder request, TimeRange times) {
        request.setWantsRecords(true);
        times.apply(request::setStartTime, request::setEndTime);
        return () -> Page.items(token -> {
            var page = call(QueryServiceGrpc.getQueryByTimeMethod(), request.clone().setPageToken(token).build());
            return new Page<>(StoredRecord.messages(page.getMessagesList(), page.getRecords(), page.getRecordCount()),
                    page.getNextPageToken());
        });
    }

    /** Records a part to close with the client. Returns false if the client is closed already. */
    private synchronized <P> boolean remember(Set<P> parts, P part) {
        return closed.getCount() > 0 && parts.add(part);
    }

    private static ReputException closedError() {
        return new ReputException(Status.Code.CANCELLED, "the client is closed");
    }

    private static ChannelCredentials credentials(ClientOptions options) {
        if (options.caFile().isEmpty()) {
            return InsecureChannelCredentials.create();
        }
        try {
            TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
            if (!options.caFile().equals("system")) {
                tls.trustManager(new File(options.caFile()));
            }
            if (!options.keyFile().isEmpty()) {
                tls.keyManager(new File(options.certificateFile()), new File(options.keyFile()));
            }
            return tls.build();
        } catch (IOException failure) {
            throw new UncheckedIOException("a certificate or key can't be read", failure);
        }
    }
}
