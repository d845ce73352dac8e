// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;

/** Messages made before the clock starts, each with a key, a tag and a unique id: the broker indexes key and id. */
final class Messages {
    /** Keys repeat after this many messages. */
    static final int KEY_COUNT = 1 << 13;
    /** What a message has in a batch beside its body: sizes, flags, and its properties as text. */
    private static final int OVERHEAD_SIZE_BYTES = 130;

    private Messages() {
    }

    static Message message(int number, byte[] body) {
        Message message = new Message(Load.TOPIC, Keys.tag(number), Keys.key(number), body);
        MessageClientIDSetter.setUniqID(message);
        return message;
    }

    /** Batches of about a size, at least one message each, that go through all keys. */
    static List<List<Message>> batches(int bodySizeBytes, int batchSizeBytes) {
        byte[] body = new byte[bodySizeBytes];
        int perBatch = Math.max(1, batchSizeBytes / (bodySizeBytes + OVERHEAD_SIZE_BYTES));
        List<List<Message>> batches = new ArrayList<>();
        for (int start = 0; start < KEY_COUNT; start += perBatch) {
            List<Message> batch = new ArrayList<>(perBatch);
            for (int i = 0; i < perBatch; i++) {
                batch.add(message((start + i) % KEY_COUNT, body));
            }
            batches.add(batch);
        }
        return batches;
    }
}
