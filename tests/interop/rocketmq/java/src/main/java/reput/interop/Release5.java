// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.Compressor;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.BatchConsumeQueue;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;

/** RocketMQ 5.3. Delayed messages are moved by a hook of the broker, which is done here by hand. */
final class Release5 implements Release {
    private static final String TOPICS = "topics.json";
    private static final long TIMER_MS_MAX = 30_000;

    private final ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
    private MessageStoreConfig config;
    private TimerMessageStore timer;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            StoreTool.run(new Release5());
        } else {
            System.out.write(body(arguments[0], CompressionType.of(arguments[1]), System.in.readAllBytes()));
            System.out.flush();
        }
    }

    /** What RocketMQ's client makes of a body when it sends (`pack`) or receives it. */
    private static byte[] body(String verb, CompressionType type, byte[] bytes) throws IOException {
        Compressor compressor = CompressorFactory.getCompressor(type);
        return verb.equals("pack") ? compressor.compress(bytes, 5) : compressor.decompress(bytes);
    }

    @Override
    public void configure(MessageStoreConfig config, JsonObject settings) {
        this.config = config;
        config.setTimerWheelEnable(false);
        config.setMapperFileSizeBatchConsumeQueue(30 * BatchConsumeQueue.CQ_STORE_UNIT_SIZE);
        config.setCompactionCqMappedFileSize(200 * BatchConsumeQueue.CQ_STORE_UNIT_SIZE);
        config.setCompactionMappedFileSize(1 << 17);
        config.setEnabledAppendPropCRC(settings.get("crc_property").getAsBoolean());
        config.setForceVerifyPropCRC(settings.get("verify_crc").getAsBoolean());
    }

    @Override
    public DefaultMessageStore make(MessageStoreConfig config) throws IOException {
        Path file = configDirectory(Path.of(config.getStorePathRootDir())).resolve(TOPICS);
        if (Files.exists(file)) {
            topics.putAll(parseTopics(Files.readString(file)));
        }
        BrokerStatsManager statistics = new BrokerStatsManager("interop", false);
        BrokerConfig broker = new BrokerConfig();
        broker.setAutoDeleteUnusedStats(false); // only a broker has begun them
        return new DefaultMessageStore(config, statistics, (t, q, o, c, s, b, p) -> { }, broker, topics);
    }

    @Override
    public void makeTopic(Path directory, String name, Map<String, String> attributes) throws IOException {
        TopicConfig topic = new TopicConfig(name, 4, 4);
        topic.setAttributes(attributes);
        topics.put(name, topic);
        Files.createDirectories(configDirectory(directory));
        Files.writeString(configDirectory(directory).resolve(TOPICS), formatTopics(topics));
    }

    private static Path configDirectory(Path directory) {
        return directory.resolve("config");
    }

    @Override
    public PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        int count = MessageDecoder.countInnerMsgNum(ByteBuffer.wrap(batch.getBody()));
        batch.setSysFlag(batch.getSysFlag() | MessageSysFlag.NEED_UNWRAP_FLAG | MessageSysFlag.INNER_BATCH_FLAG);
        batch.setInnerBatch(true);
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_INNER_NUM, "" + count);
        batch.setPropertiesString(Messages.propertyString(batch));
        return store.putMessage(batch);
    }

    @Override
    public void startTimer(DefaultMessageStore store) throws IOException {
        Path directory = configDirectory(Path.of(config.getStorePathRootDir()));
        timer = new TimerMessageStore(
            store, config, new TimerCheckpoint(directory.resolve("timercheck").toString()),
            new TimerMetrics(directory.resolve("timermetrics").toString()), new BrokerStatsManager("timer", false));
        if (!timer.load()) {
            throw new IllegalStateException("RocketMQ can't load the timer wheel");
        }
        timer.start();
    }

    @Override
    public long timerCount() throws InterruptedException {
        long end = System.currentTimeMillis() + TIMER_MS_MAX;
        while (timer.getEnqueueBehindMessages() > 0 || timer.getCommitQueueOffset() < timer.getQueueOffset()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(timer.getEnqueueBehindMessages() + " messages are not in the wheel");
            }
            Thread.sleep(50);
        }
        return timer.getTimerWheel().getAllNum(timer.getCurrReadTimeMs());
    }

    @Override
    public void stop() {
        if (timer != null) {
            timer.shutdown();
        }
    }

    @Override
    public void stopDelivery(DefaultMessageStore store) {
        // The broker delivers.
    }

    @Override
    public MessageExt newMessage() {
        return new MessageExtBrokerInner();
    }

    @Override
    public PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        if (message.getDelayTimeLevel() > 0) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, "" + message.getQueueId());
            message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
            message.setQueueId(message.getDelayTimeLevel() - 1);
        }
        inner.setPropertiesString(Messages.propertyString(message));
        return store.putMessage(inner);
    }

    @Override
    public long queueEnd(DefaultMessageStore store, String topic, int queueId) throws Exception {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    @Override
    public long[] queueOffsets(DefaultMessageStore store, String topic, int queueId, long timeMs) {
        return new long[] {
            store.getOffsetInQueueByTime(topic, queueId, timeMs, BoundaryType.LOWER),
            store.getOffsetInQueueByTime(topic, queueId, timeMs, BoundaryType.UPPER),
        };
    }

    @Override
    public Map<String, TopicConfig> parseTopics(String text) {
        return RemotingSerializable.fromJson(text, TopicConfigSerializeWrapper.class).getTopicConfigTable();
    }

    @Override
    public Map<String, ? extends Map<Integer, Long>> parseOffsets(String text) {
        return RemotingSerializable.fromJson(text, ConsumerOffsetSerializeWrapper.class).getOffsetTable();
    }

    @Override
    public String formatTopics(ConcurrentMap<String, TopicConfig> topics) {
        TopicConfigSerializeWrapper wrapper = new TopicConfigSerializeWrapper();
        wrapper.setTopicConfigTable(topics);
        return wrapper.toJson(true);
    }

    @Override
    public String formatOffsets(ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsets) {
        ConsumerOffsetSerializeWrapper wrapper = new ConsumerOffsetSerializeWrapper();
        wrapper.setOffsetTable(offsets);
        return wrapper.toJson(true);
    }
}
