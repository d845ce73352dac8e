// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.Status;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.TreeSet;
import reput.commitlog.v1.GetTopicRequest;
import reput.commitlog.v1.TopicServiceGrpc;
import reput.indexer.v1.ConsumerOffsetServiceGrpc;
import reput.indexer.v1.GetConsumerOffsetRequest;
import reput.indexer.v1.GetOffsetByTimeRequest;
import reput.indexer.v1.ListQueuesRequest;
import reput.indexer.v1.Queue;
import reput.indexer.v1.QueueServiceGrpc;

/** Finds the start of a consumer: the committed offsets of its group, or its option {@code start}. */
final class StartFinder {
    private static final int PAGE_SIZE = 1000;

    private final Client client;
    private final String topic;
    private final ConsumerOptions options;

    StartFinder(Client client, String topic, ConsumerOptions options) {
        this.client = client;
        this.topic = topic;
        this.options = options;
    }

    /** Returns the start offset of each queue. Throws ReputException for a topic that does not exist. */
    Map<Integer, Long> find() {
        Map<Integer, Queue> known = new TreeMap<>();
        Page.items(this::queuePage).forEachRemaining(queue -> known.put(queue.getQueueId(), queue));
        Map<Integer, Long> start = new TreeMap<>();
        for (int queueId : options.queueIds() == null ? allQueueIds(known) : options.queueIds()) {
            Queue queue = known.get(queueId);
            start.put(queueId, committed(queueId).orElseGet(() -> queue == null ? 0 : place(queue)));
        }
        return start;
    }

    private Page<Queue> queuePage(String token) {
        var page = client.call(QueueServiceGrpc.getListQueuesMethod(),
                ListQueuesRequest.newBuilder().setTopic(topic).setPageSize(PAGE_SIZE).setPageToken(token).build());
        return new Page<>(page.getQueuesList(), page.getNextPageToken());
    }

    /** Returns the queues of the topic, with the queues that the Indexer knows from a time when the topic had more. */
    private Iterable<Integer> allQueueIds(Map<Integer, Queue> known) {
        GetTopicRequest request = GetTopicRequest.newBuilder().setName(topic).build();
        int count = client.call(TopicServiceGrpc.getGetTopicMethod(), request).getTopic().getReadQueueCount();
        TreeSet<Integer> queueIds = new TreeSet<>(known.keySet());
        for (int queueId = 0; queueId < count; queueId++) {
            queueIds.add(queueId);
        }
        return queueIds;
    }

    private OptionalLong committed(int queueId) {
        if (options.group() == null) {
            return OptionalLong.empty();
        }
        GetConsumerOffsetRequest request = GetConsumerOffsetRequest.newBuilder()
                .setGroup(options.group()).setTopic(topic).setQueueId(queueId).build();
        try {
            return OptionalLong.of(client.call(ConsumerOffsetServiceGrpc.getGetConsumerOffsetMethod(), request)
                    .getOffset().getQueueOffset());
        } catch (ReputException error) {
            if (error.code() == Status.Code.NOT_FOUND) {
                return OptionalLong.empty();
            }
            throw error;
        }
    }

    private long place(Queue queue) {
        if (options.start().time() == null) {
            return options.start() == Start.EARLIEST ? queue.getMinQueueOffset() : queue.getMaxQueueOffset();
        }
        GetOffsetByTimeRequest request = GetOffsetByTimeRequest.newBuilder()
                .setTopic(topic).setQueueId(queue.getQueueId())
                .setTime(TimeRange.timestamp(options.start().time()))
                .build();
        return client.call(QueueServiceGrpc.getGetOffsetByTimeMethod(), request).getQueueOffset();
    }
}
