// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 5.3. Delayed messages are moved by a hook of the broker, which is done here by hand. */
final class Release5 implements Release {
    public static void main(String[] arguments) throws Exception {
        StoreTool.run(new Release5());
    }

    @Override
    public void configure(MessageStoreConfig config, JsonObject settings) {
        config.setTimerWheelEnable(false);
        config.setEnabledAppendPropCRC(settings.get("crc_property").getAsBoolean());
        config.setForceVerifyPropCRC(settings.get("verify_crc").getAsBoolean());
    }

    @Override
    public DefaultMessageStore make(MessageStoreConfig config) throws IOException {
        BrokerStatsManager statistics = new BrokerStatsManager("interop", false);
        return new DefaultMessageStore(
            config, statistics, (t, q, o, c, s, b, p) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
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
