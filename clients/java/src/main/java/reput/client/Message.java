// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import reput.common.v1.StoredMessage;

/**
 * A message as it is stored.
 *
 * @param stored the answer itself, with all fields; the methods below return the most used fields
 */
public record Message(StoredMessage stored) {
    static final String TAG = "TAGS";
    static final String KEYS = "KEYS";
    static final String UNIQUE_ID = "UNIQ_KEY";

    static List<Message> all(List<StoredMessage> stored) {
        return stored.stream().map(Message::new).toList();
    }

    /** The topic that it was appended to. */
    public String topic() {
        return stored.getTopic();
    }

    /** Queue within the topic, from 0. */
    public int queueId() {
        return stored.getQueueId();
    }

    /** Entry number in the queue, from 0. */
    public long queueOffset() {
        return stored.getQueueOffset();
    }

    /** Position of the record's first byte in the whole log. */
    public long physicalOffset() {
        return stored.getPhysicalOffset();
    }

    /** The body as it is stored. */
    public ByteString body() {
        return stored.getBody();
    }

    /** The body as UTF-8 text. */
    public String bodyText() {
        return stored.getBody().toStringUtf8();
    }

    /** All properties. */
    public Map<String, String> properties() {
        return stored.getPropertiesMap();
    }

    /** The tag, if it has a tag. */
    public Optional<String> tag() {
        return Optional.ofNullable(properties().get(TAG));
    }

    /** The keys, without the unique id. Only spaces separate them, so that other white space is part of a key. */
    public List<String> keys() {
        String[] keys = properties().getOrDefault(KEYS, "").split(" ");
        return Arrays.stream(keys).filter(key -> !key.isEmpty()).toList();
    }

    /** The unique id, if it has a unique id. */
    public Optional<String> uniqueId() {
        return Optional.ofNullable(properties().get(UNIQUE_ID));
    }

    /** The id of the record's place. */
    public String offsetMessageId() {
        return stored.getOffsetMessageId();
    }

    /** The born time by the producer's clock. */
    public Instant bornTime() {
        return Instant.ofEpochMilli(stored.getBornTimeMs());
    }

    /** The store time by the store's clock. */
    public Instant storeTime() {
        return Instant.ofEpochMilli(stored.getStoreTimeMs());
    }
}
