// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import reput.common.v1.StoredMessage;
import reput.indexer.v1.ConsumerOffset;
import reput.indexer.v1.SubscribeResponse;

/** Positions of a consumer, pages of a query, and the fields of a message. */
class ReadingTest {
    private final Positions positions = new Positions(Map.of(1, 10L, 0, 5L));

    private static SubscribeResponse answer(int queueId, long next, long... queueOffsets) {
        return SubscribeResponse.newBuilder().setNextQueueOffset(next)
                .addAllMessages(LongStream.of(queueOffsets).mapToObj(offset ->
                        StoredMessage.newBuilder().setQueueId(queueId).setQueueOffset(offset).build()).toList())
                .build();
    }

    private void add(int queueId, SubscribeResponse answer) {
        positions.add(queueId, answer.getMessagesList().stream().map(Message::new).toList(),
                answer.getNextQueueOffset());
    }

    private List<ConsumerOffset> commit() {
        List<ConsumerOffset> offsets = positions.uncommitted("t");
        positions.onCommitted(offsets);
        return offsets;
    }

    @Test
    void aPositionIsBehindTheLastMessageThatWasHandedOut() {
        add(1, answer(1, 20, 10, 12));
        assertEquals(Map.of(0, 5L, 1, 10L), positions.all());
        assertEquals(10, positions.pop().queueOffset());
        assertEquals(11L, positions.all().get(1));
        assertEquals(12, positions.pop().queueOffset());
        assertEquals(20L, positions.all().get(1), "what the tags left out is behind it, too");
        assertNull(positions.pop());
    }

    @Test
    void anAnswerWithoutMessagesMovesThePosition() {
        add(0, answer(0, 9));
        assertNull(positions.pop());
        assertEquals(9L, positions.all().get(0));
    }

    @Test
    void movingDropsWhatWaitsOfTheQueue() {
        add(1, answer(1, 12, 10, 11));
        positions.move(0, 2);
        assertEquals(10, positions.pop().queueOffset(), "another queue's stay");
        positions.move(1, 3);
        assertNull(positions.pop());
        assertEquals(Map.of(0, 2L, 1, 3L), positions.all());
    }

    @Test
    void whatIsCommittedIsNotCommittedAgain() {
        assertEquals(2, commit().size());
        assertEquals(0, commit().size());
        positions.move(1, 11);
        ConsumerOffset moved = ConsumerOffset.newBuilder().setTopic("t").setQueueId(1).setQueueOffset(11).build();
        assertEquals(List.of(moved), commit());
    }

    @Test
    void pagesAreFetchedAsTheyAreNeeded() {
        List<String> fetched = new ArrayList<>();
        Iterator<Integer> pages = Page.items(token -> {
            fetched.add(token);
            return switch (token) {
                case "" -> new Page<>(List.of(1, 2), "empty");
                case "empty" -> new Page<Integer>(List.of(), "last");
                default -> new Page<>(List.of(3), "");
            };
        });
        assertEquals(List.of(1, 2), List.of(pages.next(), pages.next()));
        assertEquals(List.of(""), fetched);
        assertEquals(3, pages.next());
        assertEquals(List.of("", "empty", "last"), fetched);
        assertFalse(pages.hasNext());
    }

    @Test
    void aMessageTellsItsTagKeysAndIds() {
        Message message = new Message(StoredMessage.newBuilder()
                .putProperties("TAGS", "red").putProperties("KEYS", "a b").putProperties("UNIQ_KEY", "id").build());
        assertEquals("red", message.tag().orElseThrow());
        assertEquals(List.of("a", "b"), message.keys());
        assertEquals("id", message.uniqueId().orElseThrow());
        Message odd = new Message(StoredMessage.newBuilder()
                .putProperties("KEYS", "\t 東京\u3000支店  new\nline ").build());
        assertEquals(List.of("\t", "東京\u3000支店", "new\nline"), odd.keys());
        Message plain = new Message(StoredMessage.getDefaultInstance());
        assertEquals(List.of(), plain.keys());
        assertTrue(plain.tag().isEmpty() && plain.uniqueId().isEmpty());
    }

    @Test
    void levelsOfDurabilityHaveTheNumbersOfTheApi() {
        for (var level : List.of(Durability.MEMORY, Durability.LOCAL_DISK, Durability.REPLICATED)) {
            assertEquals("DURABILITY_" + level, reput.common.v1.Durability.forNumber(level.ordinal()).name());
        }
        assertEquals(Durability.DEFAULT, Durability.of(99));
    }
}
