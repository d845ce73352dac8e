// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonObject;
import com.google.gson.stream.JsonWriter;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.CustomizedRetryPolicy;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ 5.3's name server and broker on a store, with its own clients, under orders. */
final class Release5Broker {
    private static final String LOOPBACK = "127.0.0.1";
    private static final int CHECK_MS = 1_000;
    private static final int CHECK_COUNT_MAX = 1_000;
    private static final int POLL_MS = 500;
    private static final int CALL_MS_MAX = 10_000;
    private static final int ROUTE_MS_MAX = 60_000;

    private final JsonWriter out;
    private NamesrvController names;
    private BrokerController broker;
    private String namesAddress;
    private String directory;

    private Release5Broker(JsonWriter out) {
        this.out = out;
    }

    public static void main(String[] arguments) {
        Orders.serve(out -> new Release5Broker(out)::obey);
    }

    private void obey(JsonObject order) throws Exception {
        switch (order.get("do").getAsString()) {
            case "open" -> open(order);
            case "offsets" -> offsets(text(order, "group"), text(order, "topic"));
            case "retries" -> retries(text(order, "group"));
            case "read" -> read(text(order, "topic"));
            case "topics" -> topics();
            case "bounds" -> bounds(text(order, "topic"), order.get("queue_count").getAsInt());
            case "change_topic" -> changeTopic(order);
            case "delete_topic" -> deleteTopic(text(order, "topic"));
            case "consume" -> consume(order);
            case "send" -> send(order);
            case "begin" -> begin(order);
            case "answer" -> answer(order);
            case "stop" -> stop();
            default -> throw new IllegalArgumentException("" + order);
        }
    }

    private static String text(JsonObject order, String name) {
        return order.get(name).getAsString();
    }

    private void open(JsonObject settings) throws Exception {
        directory = text(settings, "directory");
        MessageStoreConfig store = StoreTool.config(settings);
        store.setTimerWheelEnable(true);
        NettyServerConfig namesServer = new NettyServerConfig();
        namesServer.setBindAddress(LOOPBACK);
        namesServer.setListenPort(settings.get("names_port").getAsInt());
        namesAddress = LOOPBACK + ":" + namesServer.getListenPort();
        names = new NamesrvController(new NamesrvConfig(), namesServer);
        if (!names.initialize()) {
            throw new IllegalStateException("RocketMQ's name server does not start");
        }
        names.start();
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1(LOOPBACK);
        config.setBrokerIP2(LOOPBACK);
        config.setNamesrvAddr(namesAddress);
        config.setTransactionTimeOut(CHECK_MS);
        config.setTransactionCheckInterval(CHECK_MS);
        config.setTransactionCheckMax(CHECK_COUNT_MAX);
        config.setTransactionOpBatchInterval(CHECK_MS / 10);
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress(LOOPBACK);
        server.setListenPort(settings.get("port").getAsInt());
        config.setListenPort(server.getListenPort());
        broker = new BrokerController(config, server, new NettyClientConfig(), store);
        boolean isUnclean = new File(directory, "abort").exists();
        if (!broker.initialize()) {
            throw new IllegalStateException("RocketMQ's broker does not open the store");
        }
        broker.start();
        out.name("is_unclean").value(isUnclean);
    }

    /** The next offset of a group in each queue of a topic. */
    private void offsets(String group, String topic) throws IOException {
        Map<Integer, Long> offsets = broker.getConsumerOffsetManager().queryOffset(group, topic);
        out.name("offsets").beginObject();
        for (Map.Entry<Integer, Long> offset : new TreeMap<>(offsets == null ? Map.of() : offsets).entrySet()) {
            out.name("" + offset.getKey()).value(offset.getValue());
        }
        out.endObject();
    }

    /** How a group retries. */
    private void retries(String group) throws IOException {
        SubscriptionGroupConfig config = broker.getSubscriptionGroupManager().findSubscriptionGroupConfig(group);
        out.name("retry_count_max").value(config.getRetryMaxTimes()).name("backoffs_ms").beginArray();
        CustomizedRetryPolicy policy = config.getGroupRetryPolicy().getCustomizedRetryPolicy();
        for (long delay : policy == null ? new long[0] : policy.getNext()) {
            out.value(delay);
        }
        out.endArray();
    }

    /** All messages of a topic, by queue. */
    private void read(String topic) throws Exception {
        MessageStore store = broker.getMessageStore();
        out.name("messages").beginArray();
        Map<Integer, ?> queues = store.getQueueStore().getConsumeQueueTable().getOrDefault(topic, new ConcurrentHashMap<>());
        for (int queueId : new TreeMap<>(queues).keySet()) {
            long end = store.getMaxOffsetInQueue(topic, queueId);
            for (long next = store.getMinOffsetInQueue(topic, queueId); next < end; ) {
                GetMessageResult result = store.getMessage("interop", topic, queueId, next, 1000, null);
                if (result.getStatus() != GetMessageStatus.FOUND) {
                    throw new IllegalStateException(topic + " " + queueId + " " + next + ": " + result);
                }
                for (ByteBuffer record : result.getMessageBufferList()) {
                    write(MessageDecoder.decode(record, true, false));
                }
                next = result.getNextBeginOffset();
                result.release();
            }
        }
        out.endArray();
    }

    /** The broker's topics, with their numbers of queues and their attributes. */
    private void topics() throws IOException {
        out.name("topics").beginObject();
        for (TopicConfig topic : broker.getTopicConfigManager().getTopicConfigTable().values()) {
            out.name(topic.getTopicName()).beginObject();
            out.name("read_queue_count").value(topic.getReadQueueNums());
            out.name("write_queue_count").value(topic.getWriteQueueNums()).name("attributes").beginObject();
            for (Map.Entry<String, String> attribute : new TreeMap<>(topic.getAttributes()).entrySet()) {
                out.name(attribute.getKey()).value(attribute.getValue());
            }
            out.endObject().endObject();
        }
        out.endObject();
    }

    /** The least and the next offset of each queue, as a client asks for them. */
    private void bounds(String topic, int queueCount) throws Exception {
        DefaultMQProducer client = client();
        out.name("bounds").beginArray();
        for (int queueId = 0; queueId < queueCount; queueId++) {
            MessageQueue queue = new MessageQueue(topic, broker.getBrokerConfig().getBrokerName(), queueId);
            out.beginArray();
            out.value(api(client).getMinOffset(broker.getBrokerAddr(), queue, CALL_MS_MAX));
            out.value(api(client).getMaxOffset(broker.getBrokerAddr(), queue, CALL_MS_MAX));
            out.endArray();
        }
        out.endArray();
        client.shutdown();
    }

    /** Give a topic numbers of queues, as an administrator's tool does it. */
    private void changeTopic(JsonObject order) throws Exception {
        TopicConfig topic = new TopicConfig(text(order, "topic"));
        topic.setReadQueueNums(order.get("queue_count").getAsInt());
        topic.setWriteQueueNums(order.get("queue_count").getAsInt());
        DefaultMQProducer client = client();
        api(client).createTopic(broker.getBrokerAddr(), TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, topic, CALL_MS_MAX);
        client.shutdown();
    }

    /** Delete a topic, as an administrator's tool does it. */
    private void deleteTopic(String topic) throws Exception {
        DefaultMQProducer client = client();
        api(client).deleteTopicInBroker(broker.getBrokerAddr(), topic, CALL_MS_MAX);
        client.shutdown();
    }

    private DefaultMQProducer client() throws Exception {
        DefaultMQProducer client = new DefaultMQProducer("administrators");
        client.setNamesrvAddr(namesAddress);
        client.start();
        return client;
    }

    private static MQClientAPIImpl api(DefaultMQProducer client) {
        return client.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    /** Receive so many messages for a group, or what comes until the time is over, and commit them. */
    private void consume(JsonObject order) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(text(order, "group"));
        consumer.setNamesrvAddr(namesAddress);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(1);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(text(order, "topic"), "*");
        consumer.start();
        int left = order.get("count").getAsInt();
        long end = System.currentTimeMillis() + order.get("wait_ms").getAsLong();
        Map<MessageQueue, Long> offsets = new HashMap<>();
        out.name("messages").beginArray();
        while (left > 0 && System.currentTimeMillis() < end) {
            for (MessageExt message : consumer.poll(POLL_MS)) {
                write(message);
                MessageQueue queue = new MessageQueue(message.getTopic(), message.getBrokerName(), message.getQueueId());
                offsets.put(queue, message.getQueueOffset() + 1);
                left--;
            }
        }
        out.endArray();
        if (!offsets.isEmpty()) {
            consumer.commit(offsets, true);
        }
        consumer.shutdown();
    }

    private void write(MessageExt message) throws IOException {
        out.beginObject().name("body").value(new String(message.getBody(), StandardCharsets.UTF_8));
        out.name("queue_id").value(message.getQueueId()).name("queue_offset").value(message.getQueueOffset());
        out.name("store_time_ms").value(message.getStoreTimestamp()).name("properties").beginObject();
        for (Map.Entry<String, String> property : new TreeMap<>(message.getProperties()).entrySet()) {
            out.name(property.getKey()).value(property.getValue());
        }
        out.endObject().endObject();
    }

    /** Send a message, which waits for a time if there is one, to a queue if one is named. */
    private void send(JsonObject order) throws Exception {
        TransactionMQProducer producer = producer(text(order, "topic") + "-senders", id -> LocalTransactionState.UNKNOW);
        Message message = message(order);
        if (order.has("deliver_ms")) {
            message.setDeliverTimeMs(order.get("deliver_ms").getAsLong());
        }
        SendResult sent = order.has("queue_id")
            ? producer.send(message, queue(producer, message.getTopic(), order.get("queue_id").getAsInt()))
            : producer.send(message);
        out.name("id").value(sent.getMsgId());
        producer.shutdown();
    }

    /** A queue of a topic. The name server knows it some time after the broker's start. */
    private static MessageQueue queue(DefaultMQProducer producer, String topic, int queueId) throws Exception {
        long end = System.currentTimeMillis() + ROUTE_MS_MAX;
        while (true) {
            try {
                return producer.fetchPublishMessageQueues(topic).get(queueId);
            } catch (MQClientException unknown) {
                if (System.currentTimeMillis() > end) {
                    throw unknown;
                }
                Thread.sleep(POLL_MS);
            }
        }
    }

    /** Send a half message, and say nothing of how it ends. */
    private void begin(JsonObject order) throws Exception {
        TransactionMQProducer producer = producer(text(order, "group"), id -> LocalTransactionState.UNKNOW);
        out.name("id").value(producer.sendMessageInTransaction(message(order), null).getMsgId());
        producer.shutdown();
    }

    /** Be a producer of a group for a while: of what it is asked, one transaction is committed. */
    private void answer(JsonObject order) throws Exception {
        String committed = text(order, "commit");
        Map<String, Integer> asked = new ConcurrentHashMap<>();
        TransactionMQProducer producer = producer(text(order, "group"), id -> {
            asked.merge(id, 1, Integer::sum);
            return id.equals(committed) ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW;
        });
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(text(order, "topic"));
        client.sendHeartbeatToAllBrokerWithLock(); // so that the broker knows whom to ask
        long end = System.currentTimeMillis() + order.get("wait_ms").getAsLong();
        while (!asked.containsKey(committed) && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        Thread.sleep(2 * CHECK_MS); // its end is written, and whatever is asked twice is asked
        producer.shutdown();
        out.name("asked").beginArray();
        for (String id : asked.keySet()) {
            out.value(id);
        }
        out.endArray();
    }

    /** How a transaction ends, by its id. */
    private interface Answer {
        LocalTransactionState of(String id);
    }

    private TransactionMQProducer producer(String group, Answer answer) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(namesAddress);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return answer.of(message.getTransactionId());
            }
        });
        producer.start();
        return producer;
    }

    private static Message message(JsonObject order) {
        return new Message(text(order, "topic"), text(order, "body").getBytes(StandardCharsets.UTF_8));
    }

    private void stop() throws IOException {
        broker.shutdown();
        names.shutdown();
        out.name("is_unclean").value(new File(directory, "abort").exists());
    }
}
