// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** RocketMQ 5's own client before any server of its protocol: a gateway of ours, or RocketMQ's proxy. */
public final class GatewayLoad implements Load {
    private static final String GROUP = "bench-group";
    /** Messages under way for each thread of a fill. */
    private static final int WINDOW = 64;
    private static final int RECEIVE_COUNT = 32;
    private static final Duration INVISIBLE = Duration.ofMinutes(5);
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Arguments arguments;
    private final ClientConfiguration configuration;
    private Producer producer;
    private SimpleConsumer consumer;

    private GatewayLoad(Arguments arguments) {
        this.arguments = arguments;
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments.text("target")).enableSsl(false).setRequestTimeout(TIMEOUT).build();
    }

    public static void main(String[] words) {
        Load.run(words, GatewayLoad::new);
    }

    /** Fills the topic: `--times` as long as asked for, with many messages under way. */
    @Override
    public Result append() throws Exception {
        produce();
        byte[] body = new byte[arguments.integer("body")];
        double seconds = arguments.seconds() * arguments.integer("times", 1);
        return Measurement.throughput(arguments.integer("producers"), seconds, body.length, (thread, endNs) -> {
            Window window = new Window(WINDOW);
            for (int number = thread; System.nanoTime() < endNs; number++) {
                window.enter();
                producer.sendAsync(message(number, body)).whenComplete((receipt, failure) -> {
                    if (failure == null) {
                        window.acknowledged(1);
                    } else {
                        window.failed(failure);
                    }
                });
            }
            return window.drain();
        });
    }

    @Override
    public Result latency() throws Exception {
        produce();
        byte[] body = new byte[arguments.integer("body")];
        return Measurement.latency(
            arguments.integer("callers"), arguments.integer("calls"), body.length,
            number -> producer.send(message(number, body)));
    }

    /** Receives and acknowledges. What is timed is a receive with the acknowledgements of all that it brought. */
    @Override
    public Result receive() throws Exception {
        consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(GROUP)
            .setAwaitDuration(AWAIT).setSubscriptionExpressions(Map.of(TOPIC, FilterExpression.SUB_ALL)).build();
        int callers = arguments.integer("callers");
        AtomicInteger begun = new AtomicInteger();
        ConcurrentLinkedQueue<Long> latenciesNs = new ConcurrentLinkedQueue<>();
        Result result = Measurement.throughput(
            callers, arguments.seconds(), arguments.integer("body"), (thread, endNs) -> {
                boolean isWarm = begun.getAndIncrement() >= callers;
                long count = 0;
                while (System.nanoTime() < endNs) {
                    long startNs = System.nanoTime();
                    int settled = receiveAndAck();
                    if (settled == 0) {
                        throw new IllegalStateException("there is nothing left to receive: fill for longer");
                    }
                    count += settled;
                    if (isWarm) {
                        latenciesNs.add(System.nanoTime() - startNs);
                    }
                }
                return count;
            });
        long[] all = latenciesNs.stream().mapToLong(Long::longValue).toArray();
        return new Result(result.messages(), result.bytes(), result.seconds(), all);
    }

    private int receiveAndAck() throws Exception {
        List<MessageView> found = consumer.receive(RECEIVE_COUNT, INVISIBLE);
        CompletableFuture.allOf(found.stream().map(consumer::ackAsync).toArray(CompletableFuture[]::new)).get();
        return found.size();
    }

    private void produce() throws ClientException {
        producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(TOPIC)
            .setMaxAttempts(1).build(); // what fails is an error of the run
    }

    private Message message(int number, byte[] body) {
        return provider.newMessageBuilder().setTopic(TOPIC).setBody(body).setTag(Keys.tag(number))
            .setKeys(Keys.key(number)).build();
    }

    @Override
    public void close() throws Exception {
        if (producer != null) {
            producer.close();
        }
        if (consumer != null) {
            consumer.close();
        }
    }
}
