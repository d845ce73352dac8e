// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ 4.9. Its store moves and delivers delayed messages itself. */
final class Release4 implements Release {
    public static void main(String[] arguments) throws Exception {
        StoreTool.run(new Release4());
    }

    @Override
    public void configure(MessageStoreConfig config, JsonObject settings) {
        // 4.9 has neither the CRC property nor the timer wheel.
    }

    @Override
    public DefaultMessageStore make(MessageStoreConfig config) throws IOException {
        BrokerStatsManager statistics = new BrokerStatsManager("interop", false);
        return new DefaultMessageStore(config, statistics, (t, q, o, c, s, b, p) -> { }, new BrokerConfig());
    }

    @Override
    public void makeTopic(Path directory, String name, Map<String, String> attributes) {
        throw new UnsupportedOperationException("topics of 4.9 have no attributes");
    }

    @Override
    public PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch) {
        throw new UnsupportedOperationException("4.9 has no queues of batches");
    }

    @Override
    public void startTimer(DefaultMessageStore store) {
        throw new UnsupportedOperationException("4.9 has no timer wheel");
    }

    @Override
    public long timerCount() {
        throw new UnsupportedOperationException("4.9 has no timer wheel");
    }

    @Override
    public void stop() {
        // Nothing but the store runs.
    }

    @Override
    public void stopDelivery(DefaultMessageStore store) {
        store.handleScheduleMessageService(BrokerRole.SLAVE);
    }

    @Override
    public MessageExt newMessage() {
        return new MessageExtBrokerInner();
    }

    @Override
    public PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        MessageExtBrokerInner inner = (MessageExtBrokerInner) message;
        inner.setPropertiesString(Messages.propertyString(message));
        return store.putMessage(inner);
    }

    @Override
    public long queueEnd(DefaultMessageStore store, String topic, int queueId) {
        return store.getMaxOffsetInQueue(topic, queueId);
    }

    @Override
    public long[] queueOffsets(DefaultMessageStore store, String topic, int queueId, long timeMs) {
        return new long[] {store.getOffsetInQueueByTime(topic, queueId, timeMs)};
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
