// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.HexFormat;

/**
 * The place of a stored message, and its durability when the store answered. For a delayed message it is the place
 * where the message waits.
 *
 * @param queueId queue within the topic, from 0
 * @param queueOffset entry number in the queue, from 0
 * @param physicalOffset position of the record's first byte in the whole log
 * @param storeTimeMs milliseconds since the epoch by the store's clock
 * @param durability level that was reached; a lower level than requested means that it took too long, not a loss
 * @param uniqueId the message's unique id, "" without a unique id
 * @param storeHost address and port (4 bytes) of the store, network order
 */
public record SendResult(int queueId, long queueOffset, long physicalOffset, long storeTimeMs, Durability durability,
        String uniqueId, ByteString storeHost) {
    private static final HexFormat HEX = HexFormat.of().withUpperCase();

    /** The id of the record's place: upper-case hexadecimal of store host and physical offset. */
    public String offsetMessageId() {
        ByteBuffer id = ByteBuffer.allocate(storeHost.size() + Long.BYTES);
        return HEX.formatHex(id.put(storeHost.asReadOnlyByteBuffer()).putLong(physicalOffset).array());
    }

    /** The store time by the store's clock. */
    public Instant storeTime() {
        return Instant.ofEpochMilli(storeTimeMs);
    }
}
