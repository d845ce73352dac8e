// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class OptionsTest {
    private static final Map<Class<?>, Object> VALUES = Map.of(String.class, "changed", int.class, 3, Integer.class, 3,
            boolean.class, false, Duration.class, Duration.ofSeconds(9), RetryPolicy.class, RetryPolicy.NONE,
            Instant.class, Instant.EPOCH, Map.class, Map.of("a", "b"), List.class, List.of(4),
            ByteString.class, ByteString.EMPTY);

    static List<Record> all() {
        return List.of(ClientOptions.load(Map.of()), ProducerOptions.DEFAULT, ConsumerOptions.DEFAULT,
                RetryPolicy.DEFAULT, NewMessage.of("topic", "body"));
    }

    /** The copies are made by position; each changes only its own component. */
    @ParameterizedTest
    @MethodSource("all")
    void aCopyDiffersInOneComponent(Record original) throws ReflectiveOperationException {
        for (Method method : original.getClass().getDeclaredMethods()) {
            Object value = method.getParameterCount() == 1 ? VALUES.get(method.getParameterTypes()[0]) : null;
            if (value == null || !method.getName().startsWith("with")) {
                continue;
            }
            Object copy = method.invoke(original, value);
            String changed = method.getName().substring("with".length());
            for (var component : original.getClass().getRecordComponents()) {
                boolean isChanged = component.getName().equalsIgnoreCase(changed);
                Object before = component.getAccessor().invoke(original);
                assertEquals(isChanged ? value : before, component.getAccessor().invoke(copy), method.getName());
            }
        }
    }

    @Test
    void theEnvironmentCountsBeforeTheDefaults(@TempDir Path directory) throws IOException {
        Path file = Files.writeString(directory.resolve("token"), " first second\n");
        ClientOptions options = ClientOptions.load(Map.of("REPUT_CLIENT_COMMITLOG_TARGET", "a:1, b:2",
                "REPUT_CLIENT_TOKEN_FILE", file.toString()));
        assertEquals(List.of("a:1", "b:2"), ClientOptions.targets(options.commitlog()));
        assertEquals("127.0.0.1:7102", options.indexer());
        assertEquals("first", options.token());
        assertFalse(options.toString().contains("first"));
        assertThrows(UncheckedIOException.class,
                () -> ClientOptions.load(Map.of("REPUT_CLIENT_TOKEN_FILE", directory.resolve("none").toString())));
    }

    @Test
    void oneAddressIsEnough() {
        ClientOptions options = ClientOptions.load(
                Map.of("REPUT_CLIENT_COMMITLOG_TARGET", "a:1", "REPUT_CLIENT_STORE_TARGET", "b:2"));
        assertEquals(List.of("a:1", "b:2"), List.of(options.commitlog(), options.indexer()));
        ClientOptions elsewhere = options.at("c:3,c:4");
        assertEquals(List.of("c:3,c:4", "c:3,c:4"), List.of(elsewhere.commitlog(), elsewhere.indexer()));
    }

    @Test
    void optionsHaveRanges() {
        ClientOptions client = ClientOptions.load(Map.of());
        assertThrows(IllegalArgumentException.class, () -> client.withCommitlog(" ,"));
        assertThrows(IllegalArgumentException.class, () -> client.withTimeout(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> client.withCertificate("certificate", "key"));
        assertThrows(IllegalArgumentException.class, () -> client.withCaFile("ca").withCertificate("certificate", ""));
        ProducerOptions producer = ProducerOptions.DEFAULT;
        assertThrows(IllegalArgumentException.class, () -> producer.withLinger(Duration.ofMillis(-1)));
        assertThrows(IllegalArgumentException.class, () -> producer.withBatchSizeBytes(0));
        assertThrows(IllegalArgumentException.class, () -> producer.withBatchSizeBytes((8 << 20) + 1));
        assertThrows(IllegalArgumentException.class, () -> producer.withWindowBytes(1).checked(RetryPolicy.DEFAULT));
    }
}
