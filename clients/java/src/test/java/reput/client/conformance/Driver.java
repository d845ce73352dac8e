// SPDX-License-Identifier: Apache-2.0
package reput.client.conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.StreamSupport;
import reput.client.Client;
import reput.client.ClientOptions;
import reput.client.Consumer;
import reput.client.ConsumerOptions;
import reput.client.Durability;
import reput.client.KeyMessages;
import reput.client.Message;
import reput.client.NewMessage;
import reput.client.Producer;
import reput.client.ProducerOptions;
import reput.client.PullResult;
import reput.client.ReputException;
import reput.client.SendResult;
import reput.client.Start;
import reput.client.TimeRange;

/**
 * The driver of tests/clients: reads a step per line from standard input, and writes an answer per line to standard
 * output.
 */
public final class Driver implements AutoCloseable {
    private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().create();

    private Client client;
    private SendResult sent;

    private Driver() {}

    /** Runs until its input ends. */
    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (Driver driver = new Driver()) {
            for (String line; (line = input.readLine()) != null;) {
                output.println(GSON.toJson(driver.answer(new Step(GSON.fromJson(line, JsonObject.class)))));
            }
        }
    }

    /** A step, whose arguments may be absent. */
    private record Step(JsonObject json) {
        boolean has(String name) {
            return json.has(name) && !json.get(name).isJsonNull();
        }

        JsonElement get(String name) {
            return json.get(name);
        }

        String text(String name) {
            return has(name) ? get(name).getAsString() : "";
        }

        int integer(String name, int otherwise) {
            return has(name) ? get(name).getAsInt() : otherwise;
        }
    }

    private Map<String, Object> answer(Step step) {
        try {
            return Map.of("ok", run(step));
        } catch (IllegalArgumentException | NullPointerException refused) {
            return Map.of("error", Map.of("code", "LOCAL", "text", String.valueOf(refused.getMessage())));
        } catch (ReputException | CompletionException failure) {
            ReputException error = ReputException.of(failure);
            return Map.of("error", Map.of("code", error.code().name(), "reason", error.reason(),
                    "metadata", error.metadata(), "fields", error.fields(), "text", error.text()));
        }
    }

    private Map<String, Object> run(Step step) {
        return switch (step.text("do")) {
            case "connect" -> connect(step);
            case "send" -> send(step);
            case "send_many" -> sendMany(step);
            case "pull" -> pull(step);
            case "wait_indexed" -> {
                client.waitIndexed(sent);
                yield Map.of();
            }
            case "query_by_key" -> bodies(client.queryByKey(step.text("topic"), step.text("key"), times(step)));
            case "query_by_keys" -> queryByKeys(step);
            case "query_by_time" -> queryByTime(step);
            case "query_by_id" -> message(step.has("topic")
                    ? client.queryById(step.text("topic"), step.text("id")) : client.queryById(step.text("id")));
            case "consume" -> consume(step);
            default -> throw new IllegalArgumentException("unknown step: " + step.text("do"));
        };
    }

    private Map<String, Object> connect(Step step) {
        close();
        ClientOptions options = ClientOptions.load();
        options = with(options, step, "store", (o, json) -> o.at(json.getAsString()));
        options = with(options, step, "commitlog", (o, json) -> o.withCommitlog(json.getAsString()));
        options = with(options, step, "indexer", (o, json) -> o.withIndexer(json.getAsString()));
        options = with(options, step, "ca_file", (o, json) -> o.withCaFile(json.getAsString()));
        options = with(options, step, "certificate_file",
                (o, json) -> o.withCertificate(json.getAsString(), step.text("key_file")));
        options = with(options, step, "token", (o, json) -> o.withToken(json.getAsString()));
        options = with(options, step, "timeout_s", (o, json) -> o.withTimeout(seconds(json.getAsDouble())));
        options = with(options, step, "retries", (o, json) -> o.withRetry(o.retry().withRetries(json.getAsInt())));
        client = Client.connect(options);
        return Map.of();
    }

    private Map<String, Object> send(Step step) {
        NewMessage message = NewMessage.of(step.text("topic"), step.text("body"));
        message = with(message, step, "tag", (m, json) -> m.withTag(json.getAsString()));
        message = with(message, step, "keys", (m, json) -> m.withKeys(texts(json.getAsJsonArray())));
        message = with(message, step, "properties", (m, json) -> m.withProperties(map(json.getAsJsonObject())));
        message = with(message, step, "queue_id", (m, json) -> m.withQueueId(json.getAsInt()));
        message = with(message, step, "sharding_key", (m, json) -> m.withShardingKey(json.getAsString()));
        message = with(message, step, "unique_id", (m, json) -> m.withUniqueId(json.getAsString()));
        message = with(message, step, "delay_level", (m, json) -> m.withDelayLevel(json.getAsInt()));
        try (Producer producer = client.producer(producerOptions(step))) {
            sent = producer.send(message).join();
            return result(sent);
        }
    }

    private Map<String, Object> sendMany(Step step) {
        List<CompletableFuture<SendResult>> futures = new ArrayList<>();
        long endNs = System.nanoTime() + (step.has("seconds") ? (long) (step.get("seconds").getAsDouble() * 1e9) : 0);
        try (Producer producer = client.producer(producerOptions(step))) {
            while (step.has("seconds") ? System.nanoTime() < endNs : futures.size() < step.integer("count", 0)) {
                futures.add(producer.send(numbered(step, futures.size())));
                if (step.has("pause_ms")) {
                    sleep(step.integer("pause_ms", 0));
                }
            }
            producer.flush();
        }
        return outcomes(futures);
    }

    private static NewMessage numbered(Step step, int index) {
        StringBuilder body = new StringBuilder(step.text("prefix")).append(index);
        body.append(".".repeat(Math.max(0, step.integer("size_bytes", 0) - body.length())));
        String topic = step.text("topic");
        if (step.has("bad_topics") && step.get("bad_topics").getAsJsonObject().has(Integer.toString(index))) {
            topic = step.get("bad_topics").getAsJsonObject().get(Integer.toString(index)).getAsString();
        }
        NewMessage message = NewMessage.of(topic, body.toString());
        return step.has("queue_id") ? message.withQueueId(step.integer("queue_id", 0)) : message;
    }

    private static Map<String, Object> outcomes(List<CompletableFuture<SendResult>> futures) {
        List<List<Object>> failed = new ArrayList<>();
        long lastQueueOffset = -1;
        for (int i = 0; i < futures.size(); i++) {
            try {
                lastQueueOffset = Math.max(lastQueueOffset, futures.get(i).join().queueOffset());
            } catch (CompletionException failure) {
                ReputException error = ReputException.of(failure);
                failed.add(List.of(i, error.reason().isEmpty() ? error.code().name() : error.reason()));
            }
        }
        return Map.of("count", futures.size(), "stored_count", futures.size() - failed.size(), "failed", failed,
                "last_queue_offset", lastQueueOffset);
    }

    private Map<String, Object> pull(Step step) {
        PullResult result = client.pull(step.text("topic"), step.integer("queue_id", 0),
                step.get("queue_offset").getAsLong(), step.integer("message_count_max", 0),
                step.has("tags") ? step.text("tags") : "*", Duration.ofMillis(step.integer("wait_ms", 0)));
        Map<String, Object> answer = new LinkedHashMap<>(bodies(result.messages()));
        answer.put("status", result.status().name().substring("PULL_STATUS_".length()));
        answer.put("next_queue_offset", result.nextQueueOffset());
        answer.put("min_queue_offset", result.minQueueOffset());
        answer.put("max_queue_offset", result.maxQueueOffset());
        return answer;
    }

    private Map<String, Object> queryByKeys(Step step) {
        List<String> wanted = new ArrayList<>();
        step.get("keys").getAsJsonArray().forEach(key -> wanted.add(key.getAsString()));
        List<String> keys = new ArrayList<>();
        List<Object> bodies = new ArrayList<>();
        for (KeyMessages found : client.queryByKeys(step.text("topic"), wanted, times(step))) {
            if (found.error() != null) {
                throw found.error();
            }
            keys.add(found.key());
            bodies.add(bodies(found.messages()).get("bodies"));
        }
        return Map.of("keys", keys, "bodies", bodies);
    }

    private Map<String, Object> queryByTime(Step step) {
        return bodies(step.has("queue_id")
                ? client.queryByTime(step.text("topic"), step.integer("queue_id", 0), times(step))
                : client.queryByTime(step.text("topic"), times(step)));
    }

    private Map<String, Object> consume(Step step) {
        List<String> bodies = new ArrayList<>();
        long endNs = System.nanoTime() + seconds(step.get("timeout_s").getAsDouble()).toNanos();
        try (Consumer consumer = client.consumer(step.text("topic"), consumerOptions(step))) {
            if (step.has("seek")) {
                step.get("seek").getAsJsonObject().entrySet().forEach(
                        entry -> consumer.seek(Integer.parseInt(entry.getKey()), entry.getValue().getAsLong()));
            }
            while (bodies.size() < step.integer("count", 0)) {
                Optional<Message> message = consumer.poll(Duration.ofNanos(endNs - System.nanoTime()));
                if (message.isEmpty()) {
                    break;
                }
                bodies.add(message.get().bodyText());
            }
            if (step.has("commit") && step.get("commit").getAsBoolean()) {
                consumer.commit();
            }
            return Map.of("bodies", bodies, "positions", consumer.positions());
        }
    }

    private static ProducerOptions producerOptions(Step step) {
        ProducerOptions options = ProducerOptions.DEFAULT;
        options = with(options, step, "linger_ms", (o, json) -> o.withLinger(Duration.ofMillis(json.getAsInt())));
        options = with(options, step, "batch_size_bytes", (o, json) -> o.withBatchSizeBytes(json.getAsInt()));
        options = with(options, step, "window_bytes", (o, json) -> o.withWindowBytes(json.getAsInt()));
        options = with(options, step, "durability",
                (o, json) -> o.withDurability(Durability.valueOf(json.getAsString())));
        return with(options, step, "retries",
                (o, json) -> o.withRetry(ClientOptions.load().retry().withRetries(json.getAsInt())));
    }

    private static ConsumerOptions consumerOptions(Step step) {
        ConsumerOptions options = ConsumerOptions.DEFAULT;
        options = with(options, step, "group", (o, json) -> o.withGroup(json.getAsString()));
        options = with(options, step, "tags", (o, json) -> o.withTags(json.getAsString()));
        options = with(options, step, "start", (o, json) -> o.withStart(start(json.getAsJsonPrimitive())));
        return with(options, step, "queue_ids", (o, json) -> o.withQueueIds(
                json.getAsJsonArray().asList().stream().map(JsonElement::getAsInt).toList()));
    }

    private static Start start(JsonPrimitive json) {
        if (json.isNumber()) {
            return Start.at(Instant.ofEpochMilli(json.getAsLong()));
        }
        return json.getAsString().equals("latest") ? Start.LATEST : Start.EARLIEST;
    }

    private static TimeRange times(Step step) {
        return new TimeRange(time(step, "start_ms"), time(step, "end_ms"));
    }

    private static Instant time(Step step, String name) {
        return step.has(name) ? Instant.ofEpochMilli(step.get(name).getAsLong()) : null;
    }

    private static Map<String, Object> result(SendResult result) {
        return Map.of("queue_id", result.queueId(), "queue_offset", result.queueOffset(),
                "physical_offset", result.physicalOffset(), "store_time_ms", result.storeTimeMs(),
                "durability", result.durability().name(), "unique_id", result.uniqueId(),
                "offset_message_id", result.offsetMessageId());
    }

    private static Map<String, Object> message(Message message) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", message.topic());
        answer.put("queue_id", message.queueId());
        answer.put("queue_offset", message.queueOffset());
        answer.put("physical_offset", message.physicalOffset());
        answer.put("body", message.bodyText());
        answer.put("tag", message.tag().orElse(null));
        answer.put("keys", message.keys());
        answer.put("properties", message.properties());
        answer.put("unique_id", message.uniqueId().orElse(null));
        answer.put("store_time_ms", message.storeTime().toEpochMilli());
        answer.put("offset_message_id", message.offsetMessageId());
        return answer;
    }

    private static Map<String, Object> bodies(Iterable<Message> messages) {
        return Map.of("bodies",
                StreamSupport.stream(messages.spliterator(), false).map(Message::bodyText).toList());
    }

    private static <O> O with(O options, Step step, String name, Change<O> change) {
        return step.has(name) ? change.apply(options, step.get(name)) : options;
    }

    /** Changes options by an argument. */
    private interface Change<O> {
        O apply(O options, JsonElement argument);
    }

    private static String[] texts(JsonArray json) {
        return json.asList().stream().map(JsonElement::getAsString).toArray(String[]::new);
    }

    private static Map<String, String> map(JsonObject json) {
        Map<String, String> map = new TreeMap<>();
        json.entrySet().forEach(entry -> map.put(entry.getKey(), entry.getValue().getAsString()));
        return map;
    }

    private static Duration seconds(double seconds) {
        return Duration.ofNanos((long) (seconds * 1e9));
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {
        if (client != null) {
            client.close();
        }
    }
}
