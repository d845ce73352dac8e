// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.util.LinkedHashMap;
import java.util.Map;
import reput.commitlog.v1.AppendMessage;

/** Turns messages to send into messages of the API, and refuses invalid messages. No I/O; any thread may use it. */
final class Encoder {
    /** The last millisecond of the year 9999; the store accepts no later born time. */
    static final long BORN_TIME_MS_MAX = 253_402_300_799_999L;
    private static final char NAME_END = 1;
    private static final char VALUE_END = 2;

    private final UniqueIds uniqueIds;

    /** A message of the API with its unique id, "" without a unique id. */
    record Encoded(AppendMessage message, String uniqueId) {}

    /** Takes a maker of unique ids, null to make no unique ids. */
    Encoder(UniqueIds uniqueIds) {
        this.uniqueIds = uniqueIds;
    }

    /** Encodes a message. Throws IllegalArgumentException that names the mistake. */
    Encoded encode(NewMessage message, long nowMs) {
        Map<String, String> properties = properties(message);
        if (uniqueIds != null && !properties.containsKey(Message.UNIQUE_ID)) {
            properties.put(Message.UNIQUE_ID, uniqueIds.next(nowMs));
        }
        long bornTimeMs = message.bornTime() == null ? nowMs : message.bornTime().toEpochMilli();
        if (bornTimeMs < 0 || bornTimeMs > BORN_TIME_MS_MAX) {
            throw new IllegalArgumentException(
                    "born time " + bornTimeMs + " ms: not 0 to " + BORN_TIME_MS_MAX + " (the year 9999)");
        }
        AppendMessage.Builder encoded = AppendMessage.newBuilder()
                .setTopic(message.topic())
                .setBody(message.body())
                .setPropertyString(propertyString(properties))
                .setFlag(message.flag())
                .setBornTimeMs(bornTimeMs);
        if (message.queueId() != null) {
            encoded.setQueueId(message.queueId());
        }
        return new Encoded(encoded.build(), properties.getOrDefault(Message.UNIQUE_ID, ""));
    }

    /** Returns all properties of a message; its fields override its properties. */
    private static Map<String, String> properties(NewMessage message) {
        Map<String, String> properties = new LinkedHashMap<>(message.properties());
        putUnlessNull(properties, Message.UNIQUE_ID, message.uniqueId());
        putUnlessNull(properties, Message.TAG, message.tag());
        if (!message.keys().isEmpty()) {
            if (message.keys().stream().anyMatch(key -> key.isEmpty() || key.indexOf(' ') >= 0)) {
                throw new IllegalArgumentException("keys " + message.keys() + ": a key is not empty and has no space");
            }
            properties.put(Message.KEYS, String.join(" ", message.keys()));
        }
        putUnlessNull(properties, "__SHARDINGKEY", message.shardingKey());
        if (message.delayLevel() < 0) {
            throw new IllegalArgumentException("delay level " + message.delayLevel() + ": they begin at 1; 0 is none");
        }
        if (message.delayLevel() > 0) {
            properties.put("DELAY", Integer.toString(message.delayLevel()));
        }
        return properties;
    }

    private static void putUnlessNull(Map<String, String> properties, String name, String value) {
        if (value != null) {
            properties.put(name, value);
        }
    }

    /**
     * Returns RocketMQ's property string. Throws IllegalArgumentException for a text that would change another
     * property.
     */
    static ByteString propertyString(Map<String, String> properties) {
        StringBuilder text = new StringBuilder();
        properties.forEach((name, value) -> {
            if (name.isEmpty() || name.indexOf(NAME_END) >= 0 || name.indexOf(VALUE_END) >= 0) {
                throw new IllegalArgumentException("a property name is empty, or has 0x01 or 0x02 in it");
            }
            if (value.isEmpty() || value.indexOf(VALUE_END) >= 0) {
                throw new IllegalArgumentException("the property " + name + " has an empty value, or 0x02 in it");
            }
            text.append(name).append(NAME_END).append(value).append(VALUE_END);
        });
        if (hasHalfCharacter(text)) {
            throw new IllegalArgumentException("a property has half a character (a lone surrogate) in it");
        }
        return ByteString.copyFromUtf8(text.toString());
    }

    /** Returns whether there is a surrogate without its other half, which UTF-8 can't write. */
    private static boolean hasHalfCharacter(CharSequence text) {
        for (int i = 0; i < text.length(); i++) {
            if (Character.isSurrogate(text.charAt(i))) {
                if (i + 1 == text.length() || !Character.isSurrogatePair(text.charAt(i), text.charAt(i + 1))) {
                    return true;
                }
                i++;
            }
        }
        return false;
    }
}
