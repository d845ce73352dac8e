// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own client, with callbacks and its own batching. The broker makes the topic when it is first asked for. */
public final class KafkaLoad implements Load {
    /** Keys repeat after this many messages. A power of two. */
    private static final int KEY_COUNT = 1 << 13;
    private static final int MIB = 1 << 20;
    private static final Duration POLL_TIMEOUT = Duration.ofSeconds(1);
    private static final double READ_START_TIMEOUT_S = 30;

    private final Arguments arguments;
    private final byte[][] keys = new byte[KEY_COUNT][];
    private KafkaProducer<byte[], byte[]> producer;
    private KafkaConsumer<byte[], byte[]> consumer;

    private KafkaLoad(Arguments arguments) {
        this.arguments = arguments;
        for (int i = 0; i < KEY_COUNT; i++) {
            keys[i] = Keys.key(i).getBytes(StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] words) {
        Load.run(words, KafkaLoad::new);
    }

    @Override
    public Result append() throws Exception {
        // Threads share the producer: its documentation says that this is generally faster than one for each.
        producer = new KafkaProducer<>(streamSettings(arguments.integer("batch")));
        byte[] body = new byte[arguments.integer("body")];
        return Measurement.throughput(
            arguments.integer("producers"), arguments.seconds(), body.length, (thread, endNs) -> appendUntil(body, endNs));
    }

    private long appendUntil(byte[] body, long endNs) throws Exception {
        AtomicLong acknowledged = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        Callback callback = (place, exception) -> {
            if (exception == null) {
                acknowledged.incrementAndGet();
            } else {
                failure.compareAndSet(null, exception);
            }
        };
        for (int number = 0; System.nanoTime() < endNs && failure.get() == null; number++) {
            producer.send(new ProducerRecord<>(TOPIC, keys[number & (KEY_COUNT - 1)], body), callback);
        }
        producer.flush();
        if (failure.get() != null) {
            throw failure.get();
        }
        return acknowledged.get();
    }

    private Map<String, Object> streamSettings(int batchSizeBytes) {
        Map<String, Object> settings = producerSettings();
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 5);
        settings.put(ProducerConfig.BATCH_SIZE_CONFIG, batchSizeBytes);
        // A request carries one batch for each partition, and five requests are under way while the next ones fill.
        settings.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, Math.max(MIB, (QUEUE_COUNT + 1) * batchSizeBytes));
        settings.put(ProducerConfig.BUFFER_MEMORY_CONFIG, Math.max(64L * MIB, 32L * batchSizeBytes));
        return settings;
    }

    private Map<String, Object> producerSettings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments.text("target"));
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "none");
        // -1 leaves the size of socket buffers to the system, which knows the loopback.
        settings.put(ProducerConfig.SEND_BUFFER_CONFIG, -1);
        settings.put(ProducerConfig.RECEIVE_BUFFER_CONFIG, -1);
        return settings;
    }

    @Override
    public Result latency() throws Exception {
        Map<String, Object> settings = producerSettings();
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 0); // the default of 5 ms would be the latency
        producer = new KafkaProducer<>(settings);
        byte[] body = new byte[arguments.integer("body")];
        return Measurement.latency(
            arguments.integer("callers"), arguments.integer("calls"), body.length,
            number -> producer.send(new ProducerRecord<>(TOPIC, keys[number % KEY_COUNT], body)).get());
    }

    @Override
    public Result read() throws Exception {
        consumer = new KafkaConsumer<>(consumerSettings());
        List<TopicPartition> partitions =
            IntStream.range(0, QUEUE_COUNT).mapToObj(id -> new TopicPartition(TOPIC, id)).toList();
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        int bodySizeBytes = firstBodySizeBytes();
        return Measurement.throughput(1, arguments.seconds(), bodySizeBytes, (thread, endNs) -> readUntil(ends, endNs));
    }

    private int firstBodySizeBytes() {
        double deadlineNs = System.nanoTime() + READ_START_TIMEOUT_S * 1e9;
        while (System.nanoTime() < deadlineNs) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL_TIMEOUT)) {
                return record.value().length;
            }
        }
        throw new IllegalStateException("nothing to read");
    }

    private long readUntil(Map<TopicPartition, Long> ends, long endNs) {
        long messages = 0;
        while (System.nanoTime() < endNs) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL_TIMEOUT);
            messages += records.count();
            for (TopicPartition partition : records.partitions()) {
                if (consumer.position(partition) >= ends.get(partition)) {
                    consumer.seekToBeginning(List.of(partition));
                }
            }
        }
        return messages;
    }

    private Map<String, Object> consumerSettings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments.text("target"));
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 10_000);
        settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 4 * MIB);
        settings.put(ConsumerConfig.FETCH_MAX_BYTES_CONFIG, 16 * MIB);
        settings.put(ConsumerConfig.RECEIVE_BUFFER_CONFIG, -1);
        settings.put(ConsumerConfig.SEND_BUFFER_CONFIG, -1);
        return settings;
    }

    @Override
    public void close() {
        if (producer != null) {
            producer.close();
        }
        if (consumer != null) {
            consumer.close();
        }
    }
}
