// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import reput.commitlog.v1.AppendMessage;

/** Properties, refusals, and unique ids. */
class EncoderTest {
    private static final NewMessage PLAIN = NewMessage.of("orders", "hello");

    private static Map<String, String> propertiesOf(NewMessage message) {
        return Stream.of(new Encoder(null).encode(message, 0).message().getPropertyString().toStringUtf8().split("\2"))
                .map(pair -> pair.split("\1", 2))
                .collect(java.util.stream.Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }

    @Test
    void aMessageHasAllOfItsFields() {
        NewMessage message = PLAIN.withTag("red").withKeys("k1", "k2").withProperties(Map.of("colour", "ré d=1\1"))
                .withShardingKey("s").withUniqueId("ID").withDelayLevel(3).withQueueId(0).withFlag(9)
                .withBornTime(Instant.ofEpochMilli(77));
        AppendMessage encoded = new Encoder(null).encode(message, 5).message();
        assertEquals("orders hello 0 9 77", String.join(" ", encoded.getTopic(), encoded.getBody().toStringUtf8(),
                encoded.getQueueId() + "", encoded.getFlag() + "", encoded.getBornTimeMs() + ""));
        assertTrue(encoded.hasQueueId());
        assertEquals(Map.of("TAGS", "red", "KEYS", "k1 k2", "colour", "ré d=1\1", "__SHARDINGKEY", "s", "UNIQ_KEY",
                "ID", "DELAY", "3"), propertiesOf(message));
    }

    @Test
    void whatIsNotGivenIsLeftOut() {
        AppendMessage encoded = new Encoder(null).encode(PLAIN, 5).message();
        assertFalse(encoded.hasQueueId());
        assertTrue(encoded.getPropertyString().isEmpty());
        assertEquals(5, encoded.getBornTimeMs());
    }

    static Stream<Arguments> refused() {
        return Stream.of(
                Arguments.of("key", PLAIN.withKeys("two words")),
                Arguments.of("key", PLAIN.withKeys("")),
                Arguments.of("property", PLAIN.withProperties(Map.of("", "x"))),
                Arguments.of("property", PLAIN.withProperties(Map.of("a\1b", "x"))),
                Arguments.of("property", PLAIN.withProperties(Map.of("a\2b", "x"))),
                Arguments.of("property", PLAIN.withProperties(Map.of("x", ""))),
                Arguments.of("property", PLAIN.withProperties(Map.of("x", "a\2b"))),
                Arguments.of("property", PLAIN.withProperties(Map.of("x", "\ud83d"))),
                Arguments.of("property", PLAIN.withTag("")),
                Arguments.of("delay", PLAIN.withDelayLevel(-1)));
    }

    @ParameterizedTest
    @MethodSource("refused")
    void whatCantBeMeantIsRefused(String word, NewMessage message) {
        Encoder encoder = new Encoder(null);
        String text = assertThrows(IllegalArgumentException.class, () -> encoder.encode(message, 0)).getMessage();
        assertTrue(text.contains(word), text);
    }

    @Test
    void aMessageGetsAUniqueIdUnlessItHasOne() {
        Encoder encoder = new Encoder(UniqueIds.ofThisProcess());
        String made = encoder.encode(PLAIN, System.currentTimeMillis()).uniqueId();
        assertTrue(made.matches("[0-9A-F]{32}"), made);
        assertEquals("mine", encoder.encode(PLAIN.withUniqueId("mine"), 0).uniqueId());
        assertEquals("mine", encoder.encode(PLAIN.withProperties(Map.of("UNIQ_KEY", "mine")), 0).uniqueId());
        assertEquals("", new Encoder(null).encode(PLAIN, 0).uniqueId());
    }

    @Test
    void uniqueIdsCountFromTheBeginningOfTheMonth() {
        UniqueIds ids = new UniqueIds(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, ZoneOffset.UTC);
        long newYearMs = Instant.parse("2027-01-01T00:00:00Z").toEpochMilli();
        assertEquals("0102030405060708090A" + "9FA523FF" + "0000", ids.next(newYearMs - 1));
        assertEquals("0102030405060708090A" + "00000002" + "0001", ids.next(newYearMs + 2));
    }

    @Test
    void uniqueIdsKnowTheMonthsOfTheirZone() {
        UniqueIds ids = new UniqueIds(new byte[10], ZoneId.of("Europe/Berlin"));
        assertEquals("00000000", ids.next(Instant.parse("2026-12-31T23:00:00Z").toEpochMilli()).substring(20, 28));
    }

    @Test
    void uniqueIdsDiffer() {
        UniqueIds ids = UniqueIds.ofThisProcess();
        Set<String> made = new HashSet<>();
        List.of(0L, 1L, 2L).forEach(nowMs -> Stream.generate(() -> ids.next(nowMs)).limit(20_000).forEach(made::add));
        assertEquals(60_000, made.size());
        assertFalse(made.contains(UniqueIds.ofThisProcess().next(0)), "another maker has another prefix");
    }
}
