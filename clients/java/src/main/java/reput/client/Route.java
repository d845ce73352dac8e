// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.Status;
import java.util.List;

/**
 * The current target of a service. No I/O; any thread may use it.
 *
 * <p>The target stays until a call shows that another target is better. A follower of a log names its leader, which
 * becomes the target. The next target of the list is used after a target that can't be reached, does not answer in
 * time, shuts down, or lacks a service that it needs.
 */
final class Route {
    static final String NOT_LEADER = "NOT_LEADER";
    static final String LEASE_OVER = "LEASE_OVER";
    private static final String STOPPING = "STOPPING";
    private static final String DEPENDENCY_UNAVAILABLE = "DEPENDENCY_UNAVAILABLE";

    private final List<String> targets;
    private volatile String target;

    Route(List<String> targets) {
        this.targets = List.copyOf(targets);
        this.target = targets.get(0);
    }

    /** The target of the next call. */
    String target() {
        return target;
    }

    /** Changes the target if the error of a call to a target asks for it. */
    synchronized void onFailure(String from, ReputException error) {
        if (!from.equals(target)) {
            return; // Another call has changed it already.
        }
        String leader = error.metadata().getOrDefault("leader", "");
        if (error.reason().equals(NOT_LEADER) && !leader.isEmpty()) {
            target = leader;
        } else if (isElsewhere(error)) {
            target = targets.get((targets.indexOf(from) + 1) % targets.size()); // After an unlisted target, the first.
        }
    }

    private static boolean isElsewhere(ReputException error) {
        return switch (error.reason()) {
            case NOT_LEADER, STOPPING, LEASE_OVER, DEPENDENCY_UNAVAILABLE -> true;
            case "" -> error.code() == Status.Code.UNAVAILABLE || error.code() == Status.Code.DEADLINE_EXCEEDED;
            default -> false;
        };
    }
}
