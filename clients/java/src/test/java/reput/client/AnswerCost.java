// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import java.lang.management.ManagementFactory;
import java.util.Collections;
import java.util.List;
import reput.common.v1.StoredMessage;
import reput.indexer.v1.PullResponse;

/**
 * Prints the processor time of an answer in both forms, from its bytes to the bodies of its messages:
 * {@code java -cp target/classes:target/test-classes:target/lib/* reput.client.AnswerCost}.
 */
final class AnswerCost {
    private static final int COUNT = 1_000;
    private static final int ROUNDS = 2_000;

    private AnswerCost() {}

    public static void main(String[] arguments) throws InvalidProtocolBufferException {
        for (int size : List.of(100, 1024)) {
            byte[] properties = "UNIQ_KEY\1C0A8010A1F9018B4AAC2000000000001\2TAGS\1tag1\2KEYS\1order-1 user-1\2".getBytes();
            java.nio.ByteBuffer record = java.nio.ByteBuffer.allocate(88 + size + 1 + 5 + 2 + properties.length);
            record.putInt(record.capacity()).putInt(0xdaa320a7).position(84).putInt(size).position(88 + size)
                    .put((byte) 5).put("bench".getBytes()).putShort((short) properties.length).put(properties);
            ByteString records =
                    ByteString.copyFrom(Collections.nCopies(COUNT, ByteString.copyFrom(record.array())));
            List<StoredMessage> messages =
                    StoredRecord.messages(List.of(), records, COUNT).stream().map(Message::stored).toList();
            PullResponse asRecords = PullResponse.newBuilder().setRecords(records).setRecordCount(COUNT).build();
            PullResponse asMessages = PullResponse.newBuilder().addAllMessages(messages).build();
            System.out.printf("%d B: messages %d ns, records %d ns%n", size,
                    cost(asMessages.toByteArray()), cost(asRecords.toByteArray()));
        }
    }

    private static long cost(byte[] answer) throws InvalidProtocolBufferException {
        var threads = ManagementFactory.getThreadMXBean();
        long least = Long.MAX_VALUE;
        long bodyBytes = 0;
        for (int round = 0; round < ROUNDS; round++) {
            long startNs = threads.getCurrentThreadCpuTime();
            PullResponse parsed = PullResponse.parseFrom(answer);
            for (Message message : StoredRecord.messages(
                    parsed.getMessagesList(), parsed.getRecords(), parsed.getRecordCount())) {
                bodyBytes += message.body().size();
            }
            least = Math.min(least, threads.getCurrentThreadCpuTime() - startNs);
        }
        if (bodyBytes == 0) {
            throw new IllegalStateException();
        }
        return least / COUNT;
    }
}
