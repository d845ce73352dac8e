// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.List;

/**
 * The channel to a service at its current address: each call is sent to the route's target with the token, and reports
 * its error to the route. Any thread may use it.
 */
final class Service extends Channel {
    private static final Metadata.Key<String> AUTHORIZATION =
            Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

    private final Route route;
    private final Connections connections;
    private final Metadata headers = new Metadata();

    Service(List<String> targets, Connections connections, String token) {
        this.route = new Route(targets);
        this.connections = connections;
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
        CallOptions bounded = options.withMaxOutboundMessageSize(Connections.MESSAGE_SIZE_BYTES_MAX);
        return new SimpleForwardingClientCall<>(connections.channel(target).newCall(method, bounded)) {
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
}
