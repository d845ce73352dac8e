// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What the releases of RocketMQ call by different names, or do in different places. */
interface Release {
    /** Set what only this release has: `crc_property` and `verify_crc`, the timer wheel off, small files. */
    void configure(MessageStoreConfig config, JsonObject settings);

    /** A store with the topics of its `config/topics.json`, if the release's store wants to know them. */
    DefaultMessageStore make(MessageStoreConfig config) throws IOException;

    /** Make a topic with attributes, in the store and in `config/topics.json`. */
    void makeTopic(Path directory, String name, Map<String, String> attributes) throws IOException;

    /** Append a batch as the one record that a topic of type BatchCQ has of it. */
    PutMessageResult putInnerBatch(DefaultMessageStore store, MessageExtBatch batch);

    /** Start the timer wheel of a started store. */
    void startTimer(DefaultMessageStore store) throws IOException;

    /** Messages that wait in the timer wheel, once all of its topic is in it. */
    long timerCount() throws InterruptedException;

    /** Stop what was started besides the store. */
    void stop();

    /** Have a started store not deliver delayed messages, if it does that itself. */
    void stopDelivery(DefaultMessageStore store);

    /** An empty message of the class that `put` takes. */
    MessageExt newMessage();

    /**
     * Append a message whose fields and properties are set. A delay level moves it to the schedule topic, as a broker
     * of this release has it done.
     */
    PutMessageResult put(DefaultMessageStore store, MessageExt message) throws Exception;

    long queueEnd(DefaultMessageStore store, String topic, int queueId) throws Exception;

    /** Queue offsets for a time: the nearest one (4.x), or the lower and the upper bound (5.x). */
    long[] queueOffsets(DefaultMessageStore store, String topic, int queueId, long timeMs);

    /** `topics.json` as the broker's classes read it. */
    Map<String, TopicConfig> parseTopics(String text);

    /** `consumerOffset.json` as the broker's classes read it. */
    Map<String, ? extends Map<Integer, Long>> parseOffsets(String text);

    /** `topics.json` as the broker writes it. */
    String formatTopics(ConcurrentMap<String, TopicConfig> topics);

    /** `consumerOffset.json` as the broker writes it. */
    String formatOffsets(ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsets);
}
