// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.Gson;
import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import reput.common.v1.Host;
import reput.common.v1.StoredMessage;

/** Answers with records: the cases of all clients, and changed bytes. */
class StoredRecordTest {
    private static final Cases CASES = cases();

    private record Cases(List<Case> accepted, List<Case> refused) {}

    // The names are those of the file.
    private record Case(String name, int record_count, String records, List<Expected> messages) {
        ByteString bytes() {
            return bytesOf(records);
        }
    }

    private record Expected(String topic, int queueId, long queueOffset, long physicalOffset, String body,
            Map<String, String> properties, String rawProperties, long bornTimeMs, long storeTimeMs, Place bornHost,
            Place storeHost, int flag, int sysFlag, int reconsumeTimes, long preparedTransactionOffset,
            int recordSizeBytes, String offsetMessageId) {
        StoredMessage message() {
            return StoredMessage.newBuilder().setTopic(topic).setQueueId(queueId).setQueueOffset(queueOffset)
                    .setPhysicalOffset(physicalOffset).setBody(bytesOf(body)).putAllProperties(properties)
                    .setRawProperties(bytesOf(rawProperties)).setBornTimeMs(bornTimeMs).setStoreTimeMs(storeTimeMs)
                    .setBornHost(bornHost.host()).setStoreHost(storeHost.host()).setFlag(flag).setSysFlag(sysFlag)
                    .setReconsumeTimes(reconsumeTimes).setPreparedTransactionOffset(preparedTransactionOffset)
                    .setRecordSizeBytes(recordSizeBytes).setOffsetMessageId(offsetMessageId).build();
        }
    }

    private record Place(String address, int port) {
        Host host() {
            return Host.newBuilder().setAddress(bytesOf(address)).setPort(port).build();
        }
    }

    private static Cases cases() {
        try {
            return new Gson().fromJson(Files.readString(Path.of("../../tests/clients/records.json")), Cases.class);
        } catch (IOException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static ByteString bytesOf(String hexadecimal) {
        return ByteString.copyFrom(HexFormat.of().parseHex(hexadecimal));
    }

    private static List<Message> decoded(ByteString records, int count) {
        return StoredRecord.messages(List.of(), records, count);
    }

    @Test
    void recordsAreTheServersMessages() {
        for (Case one : CASES.accepted()) {
            List<Message> found = decoded(one.bytes(), one.record_count());
            List<Message> expected = one.messages().stream().map(each -> new Message(each.message())).toList();
            assertEquals(expected, found, one.name());
            for (int index = 0; index < found.size(); index++) {
                Message message = found.get(index);
                Message same = expected.get(index);
                assertEquals(same.hashCode(), message.hashCode());
                assertEquals(
                        List.of(same.topic(), same.queueId(), same.queueOffset(), same.physicalOffset(), same.body(),
                                same.properties(), same.tag(), same.keys(), same.uniqueId(), same.offsetMessageId(),
                                same.bornTime(), same.storeTime(), same.toString()),
                        List.of(message.topic(), message.queueId(), message.queueOffset(), message.physicalOffset(),
                                message.body(), message.properties(), message.tag(), message.keys(),
                                message.uniqueId(), message.offsetMessageId(), message.bornTime(),
                                message.storeTime(), message.toString()),
                        one.name());
            }
        }
    }

    @Test
    void unsoundRecordsAreRefused() {
        for (Case one : CASES.refused()) {
            ReputException refused = assertThrows(ReputException.class,
                    () -> decoded(one.bytes(), one.record_count()), one.name());
            assertEquals(Status.Code.INTERNAL, refused.code(), one.name());
            assertTrue(refused.getMessage().contains("the server's answer makes no sense"), refused.getMessage());
        }
    }

    @Test
    void changedBytesNeverDoMoreThanRefuse() {
        Case all = CASES.accepted().get(CASES.accepted().size() - 1);
        byte[] good = all.bytes().toByteArray();
        Random chance = new Random();
        for (int round = 0; round < 5_000; round++) {
            byte[] data = java.util.Arrays.copyOf(good, good.length - chance.nextInt(2) * chance.nextInt(good.length));
            for (int change = chance.nextInt(4); data.length > 0 && change >= 0; change--) {
                data[chance.nextInt(data.length)] = (byte) chance.nextInt();
            }
            try {
                List<Message> found = decoded(ByteString.copyFrom(data), all.record_count());
                assertEquals(all.record_count(), found.size());
                found.forEach(Message::stored);
            } catch (ReputException refused) {
                assertEquals(Status.Code.INTERNAL, refused.code());
            }
        }
    }

    @Test
    void anOlderServerAnswersWithMessages() {
        StoredMessage stored = StoredMessage.newBuilder().setQueueOffset(7).build();
        assertEquals(List.of(new Message(stored)), StoredRecord.messages(List.of(stored), ByteString.EMPTY, 0));
    }
}
