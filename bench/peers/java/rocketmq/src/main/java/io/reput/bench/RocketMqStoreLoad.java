// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's store alone, in this process: no network, no broker. The target is the file of its settings. */
public final class RocketMqStoreLoad implements Load {
    /** Batches of a thread that wait for the disk; with asynchronous flush there is never more than one. */
    private static final int WINDOW = 8;
    /** Prebuilt batches, few enough that the source of the copy stays in the cache of the processor. */
    private static final int BATCH_COUNT_MAX = 8;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final Arguments arguments;
    private final DefaultMessageStore store;

    private RocketMqStoreLoad(Arguments arguments) throws Exception {
        this.arguments = arguments;
        Properties properties = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(arguments.text("target")))) {
            properties.load(file);
        }
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(properties, config);
        store = new DefaultMessageStore(
            config, new BrokerStatsManager("bench", false), (topic, queue, end, tag, time, bits, more) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ can't load the store");
        }
        store.start();
    }

    public static void main(String[] words) {
        Load.run(words, RocketMqStoreLoad::new);
    }

    /** A batch as the broker gets it from the network: the messages are encoded already. */
    private record EncodedBatch(byte[] data, int messageCount) {
    }

    @Override
    public Result append() throws Exception {
        int bodySizeBytes = arguments.integer("body");
        List<EncodedBatch> batches = new ArrayList<>();
        Messages.batches(bodySizeBytes, arguments.integer("batch")).stream().limit(BATCH_COUNT_MAX).forEach(
            batch -> batches.add(new EncodedBatch(MessageDecoder.encodeMessages(batch), batch.size())));
        return Measurement.throughput(
            arguments.integer("producers"), arguments.seconds(), bodySizeBytes,
            (thread, endNs) -> appendUntil(batches, endNs));
    }

    private long appendUntil(List<EncodedBatch> batches, long endNs) throws Exception {
        Window window = new Window(WINDOW);
        for (int number = 0; System.nanoTime() < endNs; number++) {
            EncodedBatch batch = batches.get(number % batches.size());
            MessageExtBatch message = new MessageExtBatch();
            place(message, number);
            message.setBody(batch.data());
            window.enter();
            store.asyncPutMessages(message).whenComplete((result, failure) -> {
                if (failure == null && result.getPutMessageStatus() == PutMessageStatus.PUT_OK) {
                    window.acknowledged(batch.messageCount());
                } else {
                    window.failed(failure == null ? new IllegalStateException(result.toString()) : failure);
                }
            });
        }
        return window.drain();
    }

    @Override
    public Result latency() throws Exception {
        byte[] body = new byte[arguments.integer("body")];
        return Measurement.latency(
            arguments.integer("callers"), arguments.integer("calls"), body.length, number -> {
                PutMessageResult result = store.putMessage(message(number, body));
                if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                    throw new IllegalStateException(result.toString());
                }
            });
    }

    private static MessageExtBrokerInner message(int number, byte[] body) {
        Message sent = Messages.message(number % Messages.KEY_COUNT, body);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        place(message, number);
        message.setBody(body);
        MessageAccessor.setProperties(message, sent.getProperties());
        message.setPropertiesString(MessageDecoder.messageProperties2String(sent.getProperties()));
        return message;
    }

    private static void place(MessageExt message, int number) {
        message.setTopic(TOPIC);
        message.setQueueId(number % QUEUE_COUNT);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
    }

    @Override
    public void close() {
        // The process ends and nothing is kept. A shutdown would first put all that is left into the indexes.
    }
}
