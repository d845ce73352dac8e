// SPDX-License-Identifier: Apache-2.0
package reput.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import io.grpc.Metadata;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;

class ReputExceptionTest {
    private static final Status STATUS = Errors.withRetryAfter(Errors.withField(
            Errors.status(Code.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", Map.of("value", "5", "limit", "4")),
            "messages[0].body"), 2);

    private static StatusRuntimeException failure(byte[] details) {
        Metadata trailers = new Metadata();
        trailers.put(Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER), details);
        return Code.INVALID_ARGUMENT.toStatus().withDescription("text").asRuntimeException(trailers);
    }

    @Test
    void aFailedCallTellsAllThatTheServerSaid() {
        ReputException error = ReputException.of(failure(STATUS.toByteArray()));
        assertEquals(Code.INVALID_ARGUMENT, error.code());
        assertEquals("MESSAGE_TOO_LARGE", error.reason());
        assertEquals("MESSAGE_TOO_LARGE: text", error.getMessage());
        assertEquals(List.of("messages[0].body"), error.fields());
        assertEquals(List.of("messages[0].body", "5", "4"), List.of(error.field(), error.value(), error.limit()));
        assertEquals(Optional.of(Duration.ofSeconds(2)), error.retryAfter());
    }

    @Test
    void whatIsNotFromReputHasNoReason() {
        ErrorInfo strange = ErrorInfo.newBuilder().setDomain("other").setReason("WHATEVER").build();
        assertEquals("", ReputException.of(failure(
                Status.newBuilder().addDetails(Any.pack(strange)).build().toByteArray())).reason());
        assertEquals("", ReputException.of(failure(new byte[] {1, 2, 3})).reason());
        assertEquals("UNAVAILABLE: ", ReputException.of(Code.UNAVAILABLE.toStatus().asException()).getMessage());
    }

    @Test
    void anOutcomeWhoseDetailsCantBeReadIsNonsense() {
        ByteString half = ByteString.copyFrom(new byte[] {-1});
        Any torn = Any.pack(ErrorInfo.getDefaultInstance()).toBuilder().setValue(half).build();
        Status status = Status.newBuilder().addDetails(torn).build();
        assertThrows(IllegalStateException.class, () -> ReputException.of(status));
    }

    @Test
    void itIsFoundInWhatFuturesThrow() {
        ReputException error = Errors.unavailable();
        assertSame(error, ReputException.of(new ExecutionException(new CompletionException(error))));
        assertEquals("UNKNOWN: bug", ReputException.of(new IllegalStateException("bug")).getMessage());
    }
}
