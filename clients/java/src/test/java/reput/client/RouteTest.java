// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.grpc.Status.Code;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RouteTest {
    private final Route route = new Route(List.of("a:1", "b:2"));

    private static ReputException notLeader(Map<String, String> metadata) {
        return ReputException.of(Errors.status(Code.UNAVAILABLE, "NOT_LEADER", metadata));
    }

    @ParameterizedTest(name = "{0} {1}")
    @CsvSource({"UNAVAILABLE,'',b:2", "DEADLINE_EXCEEDED,'',b:2", "UNAVAILABLE,STOPPING,b:2",
        "UNAVAILABLE,LEASE_OVER,b:2", "UNAVAILABLE,DEPENDENCY_UNAVAILABLE,b:2",
        "UNAVAILABLE,NOT_LEADER,b:2", "UNAVAILABLE,RECOVERING,a:1", "UNAVAILABLE,STREAM_IDLE,a:1", "NOT_FOUND,'',a:1",
        "CANCELLED,'',a:1"})
    void someFailuresSendCallsToTheNextAddress(Code code, String reason, String target) {
        route.onFailure("a:1", Errors.error(code, reason));
        assertEquals(target, route.target());
    }

    @Test
    void aLeaderThatIsNamedIsNext() {
        route.onFailure("a:1", notLeader(Map.of("leader", "c:3")));
        assertEquals("c:3", route.target());
    }

    @Test
    void theFirstAddressIsBehindTheLastOneAndBehindAStranger() {
        route.onFailure("a:1", Errors.unavailable());
        route.onFailure("b:2", Errors.unavailable());
        assertEquals("a:1", route.target());
        route.onFailure("a:1", notLeader(Map.of("leader", "c:3")));
        route.onFailure("c:3", Errors.unavailable());
        assertEquals("a:1", route.target());
    }

    @Test
    void aCallThatWentElsewhereChangesNothing() {
        route.onFailure("a:1", Errors.unavailable());
        route.onFailure("a:1", Errors.unavailable());
        assertEquals("b:2", route.target());
    }
}
