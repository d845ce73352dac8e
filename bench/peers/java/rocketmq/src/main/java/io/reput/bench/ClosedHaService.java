// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * The replication service of a master that has no slaves and does not listen for any. RocketMQ's own one opens its
 * port on all addresses of the machine, whatever the broker is bound to. It is found through META-INF/service.
 */
public final class ClosedHaService extends DefaultHAService {
    @Override
    public void start() {
        // Neither the port nor the threads that talk to slaves.
    }

    @Override
    public void shutdown() {
        // Nothing was started.
    }
}
