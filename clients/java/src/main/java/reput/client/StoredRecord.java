// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import reput.common.v1.Host;
import reput.common.v1.StoredMessage;

/**
 * A record in an answer with records: its places are checked, and its values are decoded when they are read.
 *
 * <p>Format: docs/formats/records_in_answers.md. It keeps the bytes of the whole answer in memory.
 */
final class StoredRecord {
    private static final int MAGIC_V1 = 0xdaa320a7;
    private static final int MAGIC_V2 = 0xdaa320ab;
    private static final int SIZE_MIN = 91;
    /** Place of the body in a record with two IPv4 hosts. */
    private static final int BODY = 88;
    private static final int BORN_HOST_IS_V6 = 0x10;
    private static final int STORE_HOST_IS_V6 = 0x20;
    private static final int MORE_OF_V6 = 12;
    private static final char NAME_END = 1;
    private static final char VALUE_END = 2;
    /** The store's own property. Callers do not see it. */
    private static final String CRC_PROPERTY = "__CRC32#";

    private final ByteString records;
    private final ByteBuffer bytes;
    /** Places in the answer, in the order of the record. */
    private final int start;
    private final int storeTime;
    private final int body;
    private final int bodyEnd;
    private final int topic;
    private final int topicEnd;
    private final int end;
    /** Decoded at the first use. Several threads may decode it, and get equal maps. */
    private Map<String, String> properties;

    /** Checks the record at a place. Throws IllegalArgumentException unless it is sound. */
    private StoredRecord(ByteString records, ByteBuffer bytes, int start) {
        this.records = records;
        this.bytes = bytes;
        this.start = start;
        int left = bytes.limit() - start;
        check(left >= SIZE_MIN, "only ", left, " bytes are left");
        int size = bytes.getInt(start);
        check(size >= SIZE_MIN && size <= left, "its size is wrong: ", size, "");
        end = start + size;
        int magic = bytes.getInt(start + 4);
        check(magic == MAGIC_V1 || magic == MAGIC_V2, "its magic is wrong: ", magic, "");
        int topicSizeSize = magic == MAGIC_V1 ? 1 : 2;
        storeTime = start + 56 + ((sysFlag() & BORN_HOST_IS_V6) != 0 ? MORE_OF_V6 : 0);
        body = storeTime + BODY - 56 + ((sysFlag() & STORE_HOST_IS_V6) != 0 ? MORE_OF_V6 : 0);
        check(body <= end - 2 - topicSizeSize, "it has too few bytes for its hosts: ", size, "");
        int bodySize = bytes.getInt(body - 4);
        check(bodySize >= 0 && bodySize <= end - 2 - topicSizeSize - body, "its body has a wrong size: ", bodySize, "");
        bodyEnd = body + bodySize;
        topic = bodyEnd + topicSizeSize;
        int topicSize = topicSizeSize == 1 ? bytes.get(bodyEnd) : bytes.getShort(bodyEnd);
        check(topicSize >= 0 && topicSize <= end - 2 - topic, "its topic has a wrong size: ", topicSize, "");
        topicEnd = topic + topicSize;
        int propertiesSize = bytes.getShort(topicEnd);
        check(propertiesSize == end - 2 - topicEnd, "its properties have a wrong size: ", propertiesSize, "");
    }

    private static void check(boolean isSound, String before, int value, String after) {
        if (!isSound) {
            throw new IllegalArgumentException(before + value + after);
        }
    }

    /**
     * Returns the messages of an answer, which has them in one of two forms. Throws ReputException with the code
     * INTERNAL unless its records are sound and as many as it says.
     */
    static List<Message> messages(List<StoredMessage> messages, ByteString records, int count) {
        if (records.isEmpty() && count == 0) {
            return messages.stream().map(Message::new).toList();
        }
        if (count < 0 || count > records.size() / SIZE_MIN) {
            throw ReputException.nonsense(new IllegalArgumentException(
                    count + " records are announced, and there are " + records.size() + " bytes"));
        }
        ByteBuffer bytes = records.asReadOnlyByteBuffer().slice();
        List<Message> made = new ArrayList<>(count);
        int at = 0;
        try {
            while (made.size() < count) {
                StoredRecord record = new StoredRecord(records, bytes, at);
                made.add(new Message(record));
                at = record.end;
            }
            check(at == records.size(), "bytes behind the last record: ", records.size() - at, "");
        } catch (IllegalArgumentException unsound) {
            throw ReputException.nonsense(new IllegalArgumentException(
                    "record " + made.size() + " of " + count + " is not sound: " + unsound.getMessage()));
        }
        return Collections.unmodifiableList(made);
    }

    String topic() {
        return records.substring(topic, topicEnd).toStringUtf8();
    }

    int queueId() {
        return bytes.getInt(start + 12);
    }

    long queueOffset() {
        return bytes.getLong(start + 20);
    }

    long physicalOffset() {
        return bytes.getLong(start + 28);
    }

    long bornTimeMs() {
        return bytes.getLong(start + 40);
    }

    long storeTimeMs() {
        return bytes.getLong(storeTime);
    }

    /** A part of the answer. Nothing is copied. */
    ByteString body() {
        return records.substring(body, bodyEnd);
    }

    /** All properties but the store's own; none if they are not UTF-8. */
    Map<String, String> properties() {
        Map<String, String> known = properties;
        if (known == null) {
            known = Collections.unmodifiableMap(decodedProperties());
            properties = known;
        }
        return known;
    }

    String offsetMessageId() {
        StringBuilder id = new StringBuilder(56);
        for (int at = storeTime + 8; at < body - 16; at++) {
            appendHex(id, bytes.get(at));
        }
        for (int at = start + 28; at < start + 36; at++) {
            appendHex(id, bytes.get(at));
        }
        return id.toString();
    }

    /** Returns all values as the API's message. */
    StoredMessage toMessage() {
        ByteString stored = propertyString();
        return StoredMessage.newBuilder()
                .setTopic(topic()).setQueueId(queueId()).setQueueOffset(queueOffset())
                .setPhysicalOffset(physicalOffset()).setBody(body()).putAllProperties(properties())
                .setRawProperties(stored.isValidUtf8() ? ByteString.EMPTY : stored)
                .setBornTimeMs(bornTimeMs()).setStoreTimeMs(storeTimeMs())
                .setBornHost(host(start + 48, storeTime)).setStoreHost(host(storeTime + 8, body - 16))
                .setFlag(bytes.getInt(start + 16)).setSysFlag(sysFlag())
                .setReconsumeTimes(bytes.getInt(body - 16))
                .setPreparedTransactionOffset(bytes.getLong(body - 12))
                .setRecordSizeBytes(end - start).setOffsetMessageId(offsetMessageId())
                .build();
    }

    private int sysFlag() {
        return bytes.getInt(start + 36);
    }

    private Host host(int from, int to) {
        return Host.newBuilder().setAddress(records.substring(from, to - 4)).setPort(bytes.getInt(to - 4)).build();
    }

    private ByteString propertyString() {
        return records.substring(topicEnd + 2, end);
    }

    private Map<String, String> decodedProperties() {
        ByteString stored = propertyString();
        if (!stored.isValidUtf8()) {
            return Map.of();
        }
        Map<String, String> found = new LinkedHashMap<>();
        String text = stored.toStringUtf8();
        int nameEnd = text.indexOf(NAME_END);
        for (int at = 0; nameEnd >= 0;) {
            int pieceEnd = text.indexOf(VALUE_END, at);
            pieceEnd = pieceEnd < 0 ? text.length() : pieceEnd;
            if (nameEnd > at && nameEnd + 1 < pieceEnd) {
                found.put(text.substring(at, nameEnd), text.substring(nameEnd + 1, pieceEnd));
            }
            at = pieceEnd + 1;
            nameEnd = nameEnd < at ? text.indexOf(NAME_END, at) : nameEnd;
        }
        found.remove(CRC_PROPERTY);
        return found;
    }

    private static void appendHex(StringBuilder text, byte value) {
        text.append(Character.toUpperCase(Character.forDigit(value >> 4 & 15, 16)));
        text.append(Character.toUpperCase(Character.forDigit(value & 15, 16)));
    }
}
