// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A message to send. Made by {@link #of}, and by the methods that return a changed copy.
 *
 * @param topic name of the topic
 * @param body the content to store
 * @param queueId queue within the topic, from 0; null lets the store choose, by sharding key or round robin
 * @param tag the tag, null for none
 * @param keys the keys; a key is not empty and has no space
 * @param properties further properties: names neither empty nor with 0x01 or 0x02, values neither empty nor with 0x02
 * @param shardingKey messages with the same sharding key are stored in the same queue; null for none
 * @param uniqueId the unique id; null lets the producer make a unique id
 * @param delayLevel from 1: consumers get it after the time of this level (1 s, 5 s, 10 s and so on); 0 is no delay
 * @param flag a number that is opaque to the store
 * @param bornTime the born time; null is now
 */
public record NewMessage(String topic, ByteString body, Integer queueId, String tag, List<String> keys,
        Map<String, String> properties, String shardingKey, String uniqueId, int delayLevel, int flag,
        Instant bornTime) {
    /**
     * Throws NullPointerException without a topic, body, keys or properties. All other checks are made when it is sent.
     */
    public NewMessage {
        Objects.requireNonNull(topic, "topic");
        Objects.requireNonNull(body, "body");
        keys = List.copyOf(keys);
        properties = Map.copyOf(properties);
    }

    /** Returns a message with only a body. */
    public static NewMessage of(String topic, ByteString body) {
        return new NewMessage(topic, body, null, null, List.of(), Map.of(), null, null, 0, 0, null);
    }

    /** Returns a message with only a body, which is copied. */
    public static NewMessage of(String topic, byte[] body) {
        return of(topic, ByteString.copyFrom(body));
    }

    /** Returns a message with only a body, the text in UTF-8. */
    public static NewMessage of(String topic, String body) {
        return of(topic, ByteString.copyFromUtf8(body));
    }

    /** Returns a copy for a queue. */
    public NewMessage withQueueId(int queueId) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with a tag. */
    public NewMessage withTag(String tag) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with these keys in place of its keys. */
    public NewMessage withKeys(String... keys) {
        return new NewMessage(topic, body, queueId, tag, List.of(keys), properties, shardingKey, uniqueId, delayLevel,
                flag, bornTime);
    }

    /** Returns a copy with these further properties in place of its properties. */
    public NewMessage withProperties(Map<String, String> properties) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with a sharding key. */
    public NewMessage withShardingKey(String shardingKey) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with a unique id. */
    public NewMessage withUniqueId(String uniqueId) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with a delay level. */
    public NewMessage withDelayLevel(int delayLevel) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with a flag. */
    public NewMessage withFlag(int flag) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }

    /** Returns a copy with a born time, in whole milliseconds. */
    public NewMessage withBornTime(Instant bornTime) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }
}
