// SPDX-License-Identifier: Apache-2.0
package driver;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The official client for Java as a driver of the table. */
public final class Driver {
    private record Held(SimpleConsumer consumer, MessageView message) {}

    private static final Gson GSON = new Gson();
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Producer> producers = new HashMap<>();
    private final Map<String, SimpleConsumer> consumers = new HashMap<>();
    private final List<Held> messages = new ArrayList<>();
    private ClientConfiguration configuration;

    private Object answer(JsonObject ask) throws Exception {
        return switch (ask.get("do").getAsString()) {
            case "connect" -> connect(ask);
            case "send", "begin" -> send(ask);
            case "recall" -> recall(ask);
            case "receive" -> receive(ask);
            case "ack" -> ack(ask);
            case "change" -> change(ask);
            case "push" -> push(ask);
            default -> throw new IllegalArgumentException(ask.toString());
        };
    }

    private Object connect(JsonObject ask) throws Exception {
        for (Producer producer : producers.values()) {
            producer.close();
        }
        for (SimpleConsumer consumer : consumers.values()) {
            consumer.close();
        }
        producers.clear();
        consumers.clear();
        messages.clear();
        var builder = ClientConfiguration.newBuilder()
                .setEndpoints(text(ask, "endpoints", ""))
                .enableSsl(ask.has("tls") && ask.get("tls").getAsBoolean());
        if (ask.has("key")) {
            builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(text(ask, "key", ""), text(ask, "secret", "")));
        }
        configuration = builder.build();
        return Map.of();
    }

    private Object send(JsonObject ask) throws Exception {
        String topic = text(ask, "topic", "");
        Producer producer = producers.get(topic);
        if (producer == null) {
            producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                    .setTransactionChecker(Driver::check).build();
            producers.put(topic, producer);
        }
        MessageBuilder message = provider.newMessageBuilder().setTopic(topic)
                .setBody(text(ask, "body", "").getBytes(StandardCharsets.UTF_8));
        if (ask.has("tag")) {
            message.setTag(text(ask, "tag", ""));
        }
        if (ask.has("group")) {
            message.setMessageGroup(text(ask, "group", ""));
        }
        if (ask.has("deliver_s")) {
            message.setDeliveryTimestamp(ask.get("deliver_s").getAsLong() * 1_000);
        }
        if (ask.has("keys")) {
            message.setKeys(ask.getAsJsonArray("keys").asList().stream()
                    .map(JsonElement::getAsString).toArray(String[]::new));
        }
        if (ask.has("properties")) {
            ask.getAsJsonObject("properties").asMap()
                    .forEach((name, value) -> message.addProperty(name, value.getAsString()));
        }
        if (!ask.get("do").getAsString().equals("begin")) {
            SendReceipt sent = producer.send(message.build());
            return Map.of("id", sent.getMessageId().toString(), "recall_handle", sent.getRecallHandle());
        }
        Transaction transaction = producer.beginTransaction();
        String id = producer.send(message.build(), transaction).getMessageId().toString();
        String end = text(ask, "end", "");
        if (end.equals("commit")) {
            transaction.commit();
        } else if (end.equals("rollback")) {
            transaction.rollback();
        }
        return Map.of("id", id);
    }

    private Object recall(JsonObject ask) throws Exception {
        String topic = text(ask, "topic", "");
        RecallReceipt recalled = producers.get(topic).recallMessage(topic, text(ask, "recall_handle", ""));
        return Map.of("id", recalled.getMessageId().toString());
    }

    /** Returns the end of a forgotten transaction: the end that is named in the message's body. */
    private static TransactionResolution check(MessageView message) {
        String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
        return body.equals("commit when asked") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
    }

    private Object receive(JsonObject ask) throws Exception {
        String filter = text(ask, "tags", "*") + " " + text(ask, "sql", "");
        String name = text(ask, "topic", "") + " " + text(ask, "consumer_group", "") + " " + filter;
        SimpleConsumer consumer = consumers.get(name);
        if (consumer == null) {
            consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                    .setConsumerGroup(text(ask, "consumer_group", ""))
                    .setAwaitDuration(Duration.ofSeconds(5))
                    .setSubscriptionExpressions(subscription(ask))
                    .build();
            consumers.put(name, consumer);
        }
        List<Map<String, Object>> told = new ArrayList<>();
        Duration invisible = Duration.ofSeconds(ask.get("invisible_s").getAsLong());
        for (MessageView message : consumer.receive(ask.get("count").getAsInt(), invisible)) {
            Map<String, Object> one = described(message);
            one.put("number", messages.size());
            told.add(one);
            messages.add(new Held(consumer, message));
        }
        return Map.of("messages", told);
    }

    private Object ack(JsonObject ask) throws Exception {
        Held held = messages.get(ask.get("number").getAsInt());
        held.consumer.ack(held.message);
        return Map.of();
    }

    private Object change(JsonObject ask) throws Exception {
        // the client changes the handle of this message, and the table needs the former handle
        Held held = messages.get(ask.get("number").getAsInt());
        held.consumer.changeInvisibleDuration(held.message, Duration.ofSeconds(ask.get("invisible_s").getAsLong()));
        return Map.of();
    }

    private Object push(JsonObject ask) throws Exception {
        Map<String, Integer> fail = new HashMap<>();
        if (ask.has("fail")) {
            ask.getAsJsonObject("fail").asMap().forEach((body, count) -> fail.put(body, count.getAsInt()));
        }
        List<Map<String, Object>> events = Collections.synchronizedList(new ArrayList<>());
        try (PushConsumer ignored = provider.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(text(ask, "consumer_group", ""))
                .setSubscriptionExpressions(subscription(ask))
                .setMessageListener(message -> {
                    Map<String, Object> one = described(message);
                    synchronized (fail) {
                        int left = fail.getOrDefault((String) one.get("body"), 0);
                        fail.put((String) one.get("body"), left - 1);
                        one.put("failed", left > 0);
                        one.put("time_ms", System.currentTimeMillis());
                        events.add(one);
                        return left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                    }
                })
                .build()) {
            long end = System.nanoTime() + ask.get("seconds").getAsLong() * 1_000_000_000L;
            while (System.nanoTime() < end && succeeded(events) < ask.get("count").getAsLong()) {
                Thread.sleep(100);
            }
            Thread.sleep(1_000);
        }
        return Map.of("events", List.copyOf(events));
    }

    private static long succeeded(List<Map<String, Object>> events) {
        synchronized (events) {
            return events.stream().filter(event -> !(Boolean) event.get("failed")).count();
        }
    }

    private static Map<String, FilterExpression> subscription(JsonObject ask) {
        String sql = text(ask, "sql", "");
        FilterExpression expression = sql.isEmpty()
                ? new FilterExpression(text(ask, "tags", "*"), FilterExpressionType.TAG)
                : new FilterExpression(sql, FilterExpressionType.SQL92);
        return Map.of(text(ask, "topic", ""), expression);
    }

    private static Map<String, Object> described(MessageView message) {
        Map<String, Object> told = new HashMap<>();
        told.put("body", StandardCharsets.UTF_8.decode(message.getBody()).toString());
        told.put("tag", message.getTag().orElse(""));
        told.put("keys", new TreeSet<>(message.getKeys()));
        told.put("properties", message.getProperties());
        told.put("group", message.getMessageGroup().orElse(""));
        told.put("attempt", message.getDeliveryAttempt());
        told.put("id", message.getMessageId().toString());
        return told;
    }

    private static String text(JsonObject ask, String name, String otherwise) {
        return ask.has(name) ? ask.get(name).getAsString() : otherwise;
    }

    /** Answers each line with a line. */
    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Map<String, Object> answer;
            try {
                answer = Map.of("ok", driver.answer(GSON.fromJson(line, JsonObject.class)));
            } catch (Throwable error) {
                answer = Map.of("error", error.toString());
            }
            output.println(GSON.toJson(answer));
        }
        System.exit(0);
    }
}
