// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;

/** Messages and config files between RocketMQ's classes and JSON. Bodies are Base64, hosts `<hex address>:<port>`. */
final class Messages {
    private static final String TOPICS = "topics.json";
    private static final String OFFSETS = "consumerOffset.json";

    private Messages() {
    }

    /** Set all fields of a message that are in the JSON object. */
    static void fill(MessageExt message, JsonObject from) throws UnknownHostException {
        message.setTopic(from.get("topic").getAsString());
        message.setQueueId(from.get("queue_id").getAsInt());
        message.setBody(Base64.getDecoder().decode(from.get("body").getAsString()));
        message.setFlag(from.get("flag").getAsInt());
        message.setSysFlag(from.get("sys_flag").getAsInt());
        message.setBornTimestamp(from.get("born_time_ms").getAsLong());
        message.setReconsumeTimes(from.get("reconsume_times").getAsInt());
        message.setPreparedTransactionOffset(from.get("prepared_transaction_offset").getAsLong());
        message.setBornHost(host(from.get("born_host").getAsString()));
        message.setStoreHost(host(from.get("store_host").getAsString()));
        // The broker sets both flags before it hands a message to the store.
        if (address(message.getBornHost()).length == 16) {
            message.setBornHostV6Flag();
        }
        if (address(message.getStoreHost()).length == 16) {
            message.setStoreHostAddressV6Flag();
        }
        MessageAccessor.setProperties(message, properties(from));
    }

    /** One batch of all messages: topic, queue, times, hosts and flags are those of the first. */
    static MessageExtBatch batch(JsonArray from) throws UnknownHostException {
        List<Message> parts = new ArrayList<>();
        for (JsonElement element : from) {
            JsonObject part = element.getAsJsonObject();
            Message message = new Message(part.get("topic").getAsString(), Base64.getDecoder().decode(part.get("body").getAsString()));
            message.setFlag(part.get("flag").getAsInt());
            MessageAccessor.setProperties(message, properties(part));
            parts.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, from.get(0).getAsJsonObject());
        MessageAccessor.setProperties(batch, new HashMap<>());
        batch.setBody(MessageDecoder.encodeMessages(parts));
        return batch;
    }

    static String propertyString(MessageExt message) {
        return MessageDecoder.messageProperties2String(message.getProperties());
    }

    /** Write a record's fields as RocketMQ decodes them. */
    static void write(JsonWriter out, ByteBuffer record) throws IOException {
        MessageExt message = MessageDecoder.decode(record, true, false);
        if (message == null) {
            throw new IOException("RocketMQ can't decode a record that it returned");
        }
        out.beginObject();
        out.name("topic").value(message.getTopic());
        out.name("queue_id").value(message.getQueueId());
        out.name("queue_offset").value(message.getQueueOffset());
        out.name("physical_offset").value(message.getCommitLogOffset());
        out.name("size_bytes").value(message.getStoreSize());
        out.name("store_time_ms").value(message.getStoreTimestamp());
        out.name("born_time_ms").value(message.getBornTimestamp());
        out.name("flag").value(message.getFlag());
        out.name("sys_flag").value(message.getSysFlag());
        out.name("born_host").value(text(message.getBornHost()));
        out.name("store_host").value(text(message.getStoreHost()));
        out.name("reconsume_times").value(message.getReconsumeTimes());
        out.name("prepared_transaction_offset").value(message.getPreparedTransactionOffset());
        out.name("message_id").value(message.getMsgId());
        out.name("body_crc").value(message.getBodyCRC());
        byte[] body = message.getBody();
        out.name("body").value(body == null ? "" : Base64.getEncoder().encodeToString(body));
        out.name("properties").beginObject();
        if (message.getProperties() != null) {
            for (Map.Entry<String, String> property : new TreeMap<>(message.getProperties()).entrySet()) {
                out.name(property.getKey()).value(property.getValue());
            }
        }
        out.endObject();
        out.endObject();
    }

    /** Topics and consumer offsets as the release reads them from the files that there are. */
    static JsonObject readConfig(Release release, Path directory) throws IOException {
        JsonObject content = new JsonObject();
        if (Files.exists(directory.resolve(TOPICS))) {
            Map<String, TopicConfig> topics = release.parseTopics(Files.readString(directory.resolve(TOPICS)));
            JsonObject table = new JsonObject();
            for (TopicConfig topic : new TreeMap<>(topics).values()) {
                JsonArray row = new JsonArray();
                row.add(topic.getReadQueueNums());
                row.add(topic.getWriteQueueNums());
                row.add(topic.getPerm());
                row.add(topic.isOrder());
                table.add(topic.getTopicName(), row);
            }
            content.add("topics", table);
        }
        if (Files.exists(directory.resolve(OFFSETS))) {
            Map<String, ? extends Map<Integer, Long>> offsets = release.parseOffsets(Files.readString(directory.resolve(OFFSETS)));
            JsonObject table = new JsonObject();
            for (String name : new TreeMap<>(offsets).keySet()) {
                JsonObject queues = new JsonObject();
                new TreeMap<>(offsets.get(name)).forEach((queue, offset) -> queues.addProperty("" + queue, offset));
                table.add(name, queues);
            }
            content.add("consumer_offsets", table);
        }
        return content;
    }

    /** Write both files as the release does, from what `readConfig` gives. */
    static void writeConfig(Release release, Path directory, JsonObject content) throws IOException {
        Files.createDirectories(directory);
        Files.writeString(directory.resolve(TOPICS), release.formatTopics(topics(content)));
        Files.writeString(directory.resolve(OFFSETS), release.formatOffsets(offsets(content)));
    }

    private static ConcurrentMap<String, TopicConfig> topics(JsonObject content) {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (Map.Entry<String, JsonElement> entry : content.getAsJsonObject("topics").entrySet()) {
            JsonArray row = entry.getValue().getAsJsonArray();
            TopicConfig topic = new TopicConfig(entry.getKey());
            topic.setReadQueueNums(row.get(0).getAsInt());
            topic.setWriteQueueNums(row.get(1).getAsInt());
            topic.setPerm(row.get(2).getAsInt());
            topic.setOrder(row.get(3).getAsBoolean());
            topics.put(entry.getKey(), topic);
        }
        return topics;
    }

    private static ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsets(JsonObject content) {
        ConcurrentMap<String, ConcurrentMap<Integer, Long>> offsets = new ConcurrentHashMap<>();
        for (Map.Entry<String, JsonElement> entry : content.getAsJsonObject("consumer_offsets").entrySet()) {
            ConcurrentMap<Integer, Long> queues = new ConcurrentHashMap<>();
            entry.getValue().getAsJsonObject().entrySet()
                .forEach(queue -> queues.put(Integer.valueOf(queue.getKey()), queue.getValue().getAsLong()));
            offsets.put(entry.getKey(), queues);
        }
        return offsets;
    }

    private static Map<String, String> properties(JsonObject from) {
        return texts(from.getAsJsonObject("properties"));
    }

    /** An object of texts. */
    static Map<String, String> texts(JsonObject from) {
        Map<String, String> texts = new HashMap<>();
        for (Map.Entry<String, JsonElement> text : from.entrySet()) {
            texts.put(text.getKey(), text.getValue().getAsString());
        }
        return texts;
    }

    private static byte[] address(SocketAddress host) {
        return ((InetSocketAddress) host).getAddress().getAddress();
    }

    private static String text(SocketAddress host) {
        return HexFormat.of().formatHex(address(host)) + ":" + ((InetSocketAddress) host).getPort();
    }

    private static InetSocketAddress host(String text) throws UnknownHostException {
        int colon = text.indexOf(':');
        byte[] address = HexFormat.of().parseHex(text.substring(0, colon));
        return new InetSocketAddress(InetAddress.getByAddress(address), Integer.parseInt(text.substring(colon + 1)));
    }
}
