// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The channel to a service at its current address: each call is sent to the route's target with the token, and reports
 * its error to the route. Connections are made at their first use. Any thread may use it.
 */
final class Service extends Channel {
    /** Largest answer or request of the transport. */
    static final int MESSAGE_SIZE_BYTES_MAX = 64 << 20;
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
    /** The name and version of this client, which {@code reput clients} shows. */
    private static final String USER_AGENT = "reput-java/0.1.0";
    private static final int KEEPALIVE_S = 20;
    private static final int KEEPALIVE_TIMEOUT_S = 10;

    private final Route route;
    private final ChannelCredentials credentials;
    private final Metadata headers = new Metadata();
    private final Map<String, ManagedChannel> channels = new HashMap<>();
    private boolean isClosed;

    Service(List<String> targets, ChannelCredentials credentials, String token) {
        this.route = new Route(targets);
        this.credentials = credentials;
        if (!token.isEmpty()) {
            headers.put(AUTHORIZATION, "Bearer " + token);
        }
    }

    Route route() {
        return route;
    }

    @Override
    public String authority() {
        return route.target();
    }

    @Override
    public <Q, A> ClientCall<Q, A> newCall(MethodDescriptor<Q, A> method, CallOptions options) {
        String target = route.target();
        CallOptions bounded = options.withMaxOutboundMessageSize(MESSAGE_SIZE_BYTES_MAX);
        return new SimpleForwardingClientCall<>(channel(target).newCall(method, bounded)) {
            @Override
            public void start(Listener<A> listener, Metadata more) {
                more.merge(headers);
                super.start(new SimpleForwardingClientCallListener<>(listener) {
                    @Override
                    public void onClose(Status status, Metadata trailers) {
                        if (!status.isOk()) {
                            route.onFailure(target, ReputException.of(status, trailers));
                        }
                        super.onClose(status, trailers);
                    }
                }, more);
            }
        };
    }

    /** Ends all connections, and the calls on them. May be repeated. */
    synchronized void close() {
        isClosed = true;
        channels.values().forEach(ManagedChannel::shutdownNow);
    }

    private synchronized ManagedChannel channel(String target) {
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
