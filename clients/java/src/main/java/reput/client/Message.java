// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import reput.common.v1.StoredMessage;

/**
 * A message as it is stored. Its values are decoded when they are read.
 *
 * <p>It keeps the answer that it came with in memory, and so does its body: up to 8 MiB. To keep a few of many messages
 * for long, copy what you need.
 */
public final class Message {
    static final String TAG = "TAGS";
    static final String KEYS = "KEYS";
    static final String UNIQUE_ID = "UNIQ_KEY";

    /** Null for a message that came as {@link #stored}. */
    private final StoredRecord record;
    /** Made at the first use of a message that came as a record. Several threads may make it, and get equal ones. */
    private StoredMessage stored;

    /** Makes a message of an answer with messages. */
    public Message(StoredMessage stored) {
        this.record = null;
        this.stored = Objects.requireNonNull(stored);
    }

    /** Makes a message of an answer with records. */
    Message(StoredRecord record) {
        this.record = record;
    }

    /** The API's message, with all fields. The methods below return the most used fields. */
    public StoredMessage stored() {
        StoredMessage known = stored;
        if (known == null) {
            known = record.toMessage();
            stored = known;
        }
        return known;
    }

    /** The topic that it was appended to. */
    public String topic() {
        return record == null ? stored.getTopic() : record.topic();
    }

    /** Queue within the topic, from 0. */
    public int queueId() {
        return record == null ? stored.getQueueId() : record.queueId();
    }

    /** Entry number in the queue, from 0. */
    public long queueOffset() {
        return record == null ? stored.getQueueOffset() : record.queueOffset();
    }

    /** Position of the record's first byte in the whole log. */
    public long physicalOffset() {
        return record == null ? stored.getPhysicalOffset() : record.physicalOffset();
    }

    /** The body as it is stored. */
    public ByteString body() {
        return record == null ? stored.getBody() : record.body();
    }

    /** The body as UTF-8 text. */
    public String bodyText() {
        return body().toStringUtf8();
    }

    /** All properties. */
    public Map<String, String> properties() {
        return record == null ? stored.getPropertiesMap() : record.properties();
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
        return record == null ? stored.getOffsetMessageId() : record.offsetMessageId();
    }

    /** The born time by the producer's clock. */
    public Instant bornTime() {
        return Instant.ofEpochMilli(record == null ? stored.getBornTimeMs() : record.bornTimeMs());
    }

    /** The store time by the store's clock. */
    public Instant storeTime() {
        return Instant.ofEpochMilli(record == null ? stored.getStoreTimeMs() : record.storeTimeMs());
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Message message && stored().equals(message.stored());
    }

    @Override
    public int hashCode() {
        return Objects.hash(topic(), queueId(), queueOffset(), physicalOffset());
    }

    @Override
    public String toString() {
        return "Message[stored=" + stored() + "]";
    }
}
