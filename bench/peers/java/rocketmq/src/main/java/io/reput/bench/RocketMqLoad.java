// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;

/** RocketMQ's own client: batches that the caller collects, sent with callbacks; a pull loop for each queue. */
public final class RocketMqLoad implements Load {
    private static final String GROUP = "bench";
    private static final int TIMEOUT_MS = 60_000;
    private static final int RETRY_MS = 100;
    private static final int MESSAGE_SIZE_MAX = 8 << 20; // as the broker's
    /** Batches under way for each thread. */
    private static final int WINDOW = 8;
    private static final int PULL_COUNT = 4096;
    /** Neighbours in the questions are no neighbours in the log; prime to the number of keys. */
    private static final int LOOKUP_STRIDE = 2477;

    private final Arguments arguments;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer consumer;

    private RocketMqLoad(Arguments arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] words) {
        Load.run(words, RocketMqLoad::new);
    }

    @Override
    public Result append() throws Exception {
        int bodySizeBytes = arguments.integer("body");
        connect();
        List<List<Message>> batches = Messages.batches(bodySizeBytes, arguments.integer("batch"));
        return Measurement.throughput(
            arguments.integer("producers"), arguments.seconds(), bodySizeBytes,
            (thread, endNs) -> appendUntil(batches, endNs));
    }

    private long appendUntil(List<? extends Collection<Message>> batches, long endNs) throws Exception {
        Window window = new Window(WINDOW);
        for (int number = 0; System.nanoTime() < endNs; number++) {
            Collection<Message> batch = batches.get(number % batches.size());
            window.enter();
            producer.send(batch, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        window.acknowledged(batch.size());
                    } else {
                        window.failed(new IllegalStateException(result.toString()));
                    }
                }

                @Override
                public void onException(Throwable failure) {
                    window.failed(failure);
                }
            });
        }
        return window.drain();
    }

    @Override
    public Result latency() throws Exception {
        connect();
        byte[] body = new byte[arguments.integer("body")];
        return Measurement.latency(
            arguments.integer("callers"), arguments.integer("calls"), body.length, number -> {
                SendResult result = producer.send(Messages.message(number % Messages.KEY_COUNT, body));
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(result.toString());
                }
            });
    }

    /** Starts the producer, which all threads share, and makes the topic. */
    private void connect() throws Exception {
        producer = new DefaultMQProducer(GROUP);
        producer.setNamesrvAddr(arguments.text("target"));
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setMaxMessageSize(MESSAGE_SIZE_MAX);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        // What fails is an error of the run, and a message that is sent again might be there twice.
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        createTopic();
    }

    /** A broker may say that it has started before the name server knows it: then it is asked again. */
    private void createTopic() throws Exception {
        long deadlineNs = System.nanoTime() + TIMEOUT_MS * 1_000_000L;
        while (true) {
            try {
                producer.createTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, TOPIC, QUEUE_COUNT, null);
                return;
            } catch (MQClientException failure) {
                if (System.nanoTime() > deadlineNs) {
                    throw failure;
                }
                Thread.sleep(RETRY_MS);
            }
        }
    }

    @Override
    public Result read() throws Exception {
        consumer = new DefaultMQPullConsumer(GROUP);
        consumer.setNamesrvAddr(arguments.text("target"));
        consumer.setConsumerPullTimeoutMillis(TIMEOUT_MS);
        consumer.start();
        List<MessageQueue> queues = List.copyOf(consumer.fetchSubscribeMessageQueues(TOPIC));
        int bodySizeBytes = pulled(queues.get(0), 0).getMsgFoundList().get(0).getBody().length;
        return Measurement.throughput(
            queues.size(), arguments.seconds(), bodySizeBytes,
            (thread, endNs) -> readUntil(queues.get(thread), endNs));
    }

    private long readUntil(MessageQueue queue, long endNs) throws Exception {
        long messages = 0;
        long queueOffset = 0;
        long endQueueOffset = consumer.maxOffset(queue);
        while (System.nanoTime() < endNs) {
            PullResult result = pulled(queue, queueOffset);
            messages += result.getMsgFoundList().size();
            queueOffset = result.getNextBeginOffset() < endQueueOffset ? result.getNextBeginOffset() : 0;
        }
        return messages;
    }

    private PullResult pulled(MessageQueue queue, long queueOffset) throws Exception {
        PullResult result = consumer.pull(queue, "*", queueOffset, PULL_COUNT);
        if (result.getPullStatus() != PullStatus.FOUND) {
            throw new IllegalStateException(queue + " at " + queueOffset + ": " + result);
        }
        return result;
    }

    /** Asks for keys that `append` has written: it goes through all of them during its warm-up. */
    @Override
    public Result lookup() throws Exception {
        connect();
        int bodySizeBytes = lookedUp(0).getBody().length;
        return Measurement.latency(
            1, arguments.integer("calls"), bodySizeBytes,
            number -> lookedUp((int) ((long) number * LOOKUP_STRIDE % Messages.KEY_COUNT)));
    }

    private Message lookedUp(int number) throws Exception {
        return producer.queryMessage(TOPIC, Keys.key(number), 1, 0, Long.MAX_VALUE).getMessageList().get(0);
    }

    @Override
    public void close() {
        if (producer != null) {
            producer.shutdown();
        }
        if (consumer != null) {
            consumer.shutdown();
        }
    }
}
