// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.ChannelCredentials;
import io.grpc.ConnectivityState;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The connections of a client, one for each address: services at the same address share it. Made at their first use.
 * Any thread may use them.
 */
final class Connections {
    /** Largest answer or request of the transport. */
    static final int MESSAGE_SIZE_BYTES_MAX = 64 << 20;
    /** The name and version of this client, which {@code reput clients} shows. */
    private static final String USER_AGENT = "reput-java/0.1.0";
    private static final int KEEPALIVE_S = 20;
    private static final int KEEPALIVE_TIMEOUT_S = 10;

    private final ChannelCredentials credentials;
    private final Map<String, ManagedChannel> channels = new HashMap<>();
    private boolean isClosed;

    Connections(ChannelCredentials credentials) {
        this.credentials = credentials;
    }

    /** Returns the channel to an address. Throws ReputException if the client is closed. */
    synchronized ManagedChannel channel(String target) {
        if (isClosed) {
            throw new ReputException(Status.Code.CANCELLED, "the client is closed");
        }
        ManagedChannel channel = channels.computeIfAbsent(target, this::connect);
        if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
            // gRPC's own pauses between two attempts to connect grow to minutes; this client uses the pauses of
            // RetryPolicy.
            channel.resetConnectBackoff();
        }
        return channel;
    }

    /** Ends all connections, and the calls on them. May be repeated. */
    synchronized void close() {
        isClosed = true;
        channels.values().forEach(ManagedChannel::shutdownNow);
    }

    private ManagedChannel connect(String target) {
        return Grpc.newChannelBuilder(target, credentials)
                .maxInboundMessageSize(MESSAGE_SIZE_BYTES_MAX)
                .userAgent(USER_AGENT)
                .keepAliveTime(KEEPALIVE_S, TimeUnit.SECONDS)
                .keepAliveTimeout(KEEPALIVE_TIMEOUT_S, TimeUnit.SECONDS)
                .disableRetry() // This client retries calls itself, by their reason.
                .build();
    }
}
