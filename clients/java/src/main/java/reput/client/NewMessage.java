// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A message to send. Made by {@link #of}, and by the methods that return a copy with something else.
 *
 * @param topic name of the topic
 * @param body what to store
 * @param queueId queue within the topic, from 0; null lets the store choose, by sharding key or round robin
 * @param tag the tag, null for none
 * @param keys the keys, none empty or with a space
 * @param properties further properties: names neither empty nor with 0x01 or 0x02, values neither empty nor with 0x02
 * @param shardingKey messages of one sharding key go to one queue; null for none
 * @param uniqueId null lets the producer make one
 * @param delayLevel from 1, brings it to consumers after that level's time (1 s, 5 s, 10 s and so on); 0 is no delay
 * @param flag opaque to the store
 * @param bornTime null is now
 */
public record NewMessage(String topic, ByteString body, Integer queueId, String tag, List<String> keys,
        Map<String, String> properties, String shardingKey, String uniqueId, int delayLevel, int flag,
        Instant bornTime) {
    /** Throws NullPointerException without a topic, body, keys or properties. All else is looked at when it is sent. */
    public NewMessage {
        Objects.requireNonNull(topic, "topic");
        Objects.requireNonNull(body, "body");
        keys = List.copyOf(keys);
        properties = Map.copyOf(properties);
    }

    /** Returns a message with nothing but a body. */
    public static NewMessage of(String topic, ByteString body) {
        return new NewMessage(topic, body, null, null, List.of(), Map.of(), null, null, 0, 0, null);
    }

    /** Returns a message with nothing but a body, which is copied. */
    public static NewMessage of(String topic, byte[] body) {
        return of(topic, ByteString.copyFrom(body));
    }

    /** Returns a message with nothing but a body, the text in UTF-8. */
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

    /** Returns a copy with these keys alone. */
    public NewMessage withKeys(String... keys) {
        return new NewMessage(topic, body, queueId, tag, List.of(keys), properties, shardingKey, uniqueId, delayLevel,
                flag, bornTime);
    }

    /** Returns a copy with these further properties alone. */
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

    /** Returns a copy with a born time; milliseconds count. */
    public NewMessage withBornTime(Instant bornTime) {
        return new NewMessage(topic, body, queueId, tag, keys, properties, shardingKey, uniqueId, delayLevel, flag,
                bornTime);
    }
}
