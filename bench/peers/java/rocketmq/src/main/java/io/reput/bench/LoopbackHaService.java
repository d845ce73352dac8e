// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * RocketMQ's own replication service, but for its port: that one is open on all addresses of the machine, whatever the
 * broker is bound to. A master that has no slaves listens for none. It is found through META-INF/service.
 */
public final class LoopbackHaService extends DefaultHAService {
    private boolean hasReplicas;

    @Override
    public void init(DefaultMessageStore store) throws IOException {
        super.init(store);
        MessageStoreConfig config = store.getMessageStoreConfig();
        hasReplicas = config.getBrokerRole() != BrokerRole.ASYNC_MASTER;
        try {
            Field address = AcceptSocketService.class.getDeclaredField("socketAddressListen");
            address.setAccessible(true);
            address.set(acceptSocketService, new InetSocketAddress(InetAddress.getLoopbackAddress(), config.getHaListenPort()));
        } catch (ReflectiveOperationException error) {
            throw new IOException("the port of the replication service can't be bound to the loopback", error);
        }
    }

    @Override
    public void start() throws Exception {
        if (hasReplicas) {
            super.start();
        }
    }

    @Override
    public void shutdown() {
        if (hasReplicas) {
            super.shutdown();
        }
    }
}
