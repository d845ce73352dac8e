// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import com.google.protobuf.ByteString;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import reput.client.Client;
import reput.client.ClientOptions;
import reput.client.Durability;
import reput.client.NewMessage;
import reput.client.Producer;
import reput.client.ProducerOptions;

/** Single messages through Reput's own client for Java, which puts them into batches. Threads share a producer. */
final class ReputProducing {
    /** Messages repeat after so many: their making is not what is measured. A power of two. */
    private static final int MESSAGE_COUNT = 1 << 13;
    private static final Map<String, Durability> DURABILITIES =
        Map.of("async", Durability.MEMORY, "sync", Durability.LOCAL_DISK);

    private ReputProducing() {
    }

    static Result append(Arguments arguments) throws Exception {
        ByteString body = ByteString.copyFrom(new byte[arguments.integer("body")]);
        NewMessage[] messages = IntStream.range(0, MESSAGE_COUNT)
            .mapToObj(number -> NewMessage.of(Load.TOPIC, body).withTag(Keys.tag(number))
                .withKeys(Keys.key(number), "user-" + number % 997))
            .toArray(NewMessage[]::new);
        ProducerOptions options = ProducerOptions.DEFAULT
            .withBatchSizeBytes(arguments.integer("batch"))
            .withDurability(DURABILITIES.get(arguments.text("durability")));
        try (Client client = Client.connect(ClientOptions.load().withCommitlog(arguments.text("target")));
                Producer producer = client.producer(options)) {
            return Measurement.throughput(arguments.integer("producers"), arguments.seconds(), body.size(),
                (thread, endNs) -> sendUntil(producer, messages, endNs));
        }
    }

    private static long sendUntil(Producer producer, NewMessage[] messages, long endNs) throws Exception {
        AtomicLong stored = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int number = 0; System.nanoTime() < endNs && failure.get() == null; number++) {
            producer.send(messages[number & (MESSAGE_COUNT - 1)]).whenComplete((result, refusal) -> {
                if (refusal == null) {
                    stored.incrementAndGet();
                } else {
                    failure.compareAndSet(null, refusal);
                }
            });
        }
        producer.flush();
        if (failure.get() != null) {
            throw new IllegalStateException("a message was not stored", failure.get());
        }
        return stored.get();
    }
}
