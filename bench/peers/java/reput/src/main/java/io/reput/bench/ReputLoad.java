// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import com.google.protobuf.CodedOutputStream;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.MethodDescriptor;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Single messages to Reput: an append through its client for Java, a latency with a call of grpc-java each, over one
 * connection. Requests of calls are serialized before the clock starts, and of an answer only its status is looked at.
 */
public final class ReputLoad implements Load {
    private static final int REQUEST_COUNT = 64;
    /** What an acknowledgement waits for, as numbers of reput.common.v1.Durability. */
    private static final Map<String, Integer> DURABILITIES = Map.of("async", 1, "sync", 2);

    private static final MethodDescriptor<byte[], byte[]> APPEND = MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("reput.commitlog.v1.AppendService/Append")
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(new Bytes())
        .build();

    private final Arguments arguments;
    private final int durability;
    private final ManagedChannel channel;

    private ReputLoad(Arguments arguments) {
        this.arguments = arguments;
        durability = DURABILITIES.get(arguments.text("durability"));
        channel = ManagedChannelBuilder.forTarget(arguments.text("target")).usePlaintext().build();
    }

    public static void main(String[] words) {
        Load.run(words, ReputLoad::new);
    }

    @Override
    public Result append() throws Exception {
        return ReputProducing.append(arguments);
    }

    @Override
    public Result latency() throws Exception {
        byte[] body = new byte[arguments.integer("body")];
        byte[][] requests = IntStream.range(0, REQUEST_COUNT)
            .mapToObj(number -> request(number, body))
            .toArray(byte[][]::new);
        Channel calls = channel;
        return Measurement.latency(
            arguments.integer("callers"), arguments.integer("calls"), body.length,
            number -> ClientCalls.blockingUnaryCall(
                calls, APPEND, CallOptions.DEFAULT, requests[number % REQUEST_COUNT]));
    }

    /** A serialized AppendRequest, with properties as the load generators in other languages send them. */
    private byte[] request(int number, byte[] body) {
        String properties = String.format(
            "UNIQ_KEY\u0001C0A8010A1F9018B4AAC2%012d\u0002TAGS\u0001%s\u0002KEYS\u0001order-%012d user-%d\u0002",
            number, Keys.tag(number), number, number % 997);
        byte[] message = written(out -> {
            out.writeString(1, TOPIC);
            out.writeUInt32(2, number % QUEUE_COUNT);
            out.writeByteArray(3, body);
            out.writeByteArray(5, properties.getBytes(StandardCharsets.UTF_8));
        });
        return written(out -> {
            out.writeByteArray(1, message);
            out.writeEnum(2, durability);
        });
    }

    @FunctionalInterface
    private interface Writer {
        void write(CodedOutputStream out) throws IOException;
    }

    private static byte[] written(Writer writer) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try {
            CodedOutputStream out = CodedOutputStream.newInstance(bytes);
            writer.write(out);
            out.flush();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        return bytes.toByteArray();
    }

    /** Passes bytes on as they are. */
    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }

    @Override
    public void close() {
        channel.shutdownNow();
    }
}
