// SPDX-License-Identifier: Apache-2.0
package reput.client;

import io.grpc.Status;
import java.util.List;

/**
 * Which of a service's targets calls go to. No I/O; any thread may use it.
 *
 * <p>The target stays until a call shows that another one is better: a log that follows another one names its leader,
 * and one that can't be reached, does not answer in time, is shutting down, or lacks a service that it needs, makes room
 * for the next of the list.
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

    /** Where the next call goes. */
    String target() {
        return target;
    }

    /** Takes note of the error of a call that went to a target. */
    synchronized void onFailure(String from, ReputException error) {
        if (!from.equals(target)) {
            return; // Another call has found out before.
        }
        String leader = error.metadata().getOrDefault("leader", "");
        if (error.reason().equals(NOT_LEADER) && !leader.isEmpty()) {
            target = leader;
        } else if (isElsewhere(error)) {
            target = targets.get((targets.indexOf(from) + 1) % targets.size()); // The first one behind a stranger.
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
