// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.grpc.Status;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class SendFutureTest {
    private static final ReputException REFUSED = new ReputException(Status.Code.INVALID_ARGUMENT, "too large");
    private final SendFuture.Unread unread = new SendFuture.Unread();

    private SendFuture fail(SendFuture future) {
        future.failUnread(unread, REFUSED);
        future.completeExceptionally(REFUSED);
        return future;
    }

    @Test
    void aFailureThatNobodyAskedAboutIsCounted() {
        fail(new SendFuture());
        SendFuture second = fail(new SendFuture());
        assertEquals(2, unread.count());
        assertEquals(REFUSED, unread.first());
        assertThrows(CompletionException.class, second::join);
        assertThrows(CompletionException.class, second::join);
        assertEquals(1, unread.count());
    }

    @Test
    void whoAskedBeforeIsTold() {
        List<Consumer<SendFuture>> ways = List.of(
                future -> future.whenComplete((result, error) -> {}), future -> future.handle((result, error) -> 0),
                future -> future.thenApply(result -> 0), future -> future.thenAcceptAsync(result -> {}),
                future -> CompletableFuture.allOf(future), SendFuture::isCompletedExceptionally,
                future -> future.getNow(null), future -> future.orTimeout(1, TimeUnit.HOURS).exceptionally(e -> null));
        for (Consumer<SendFuture> way : ways) {
            SendFuture future = new SendFuture();
            way.accept(future);
            fail(future);
            assertEquals(0, unread.count());
        }
    }
}
