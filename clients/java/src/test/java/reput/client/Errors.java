// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import io.grpc.Status.Code;
import java.util.Map;

/** Builders of errors as the server sends them. */
final class Errors {
    private Errors() {}

    static Status status(Code code, String reason, Map<String, String> metadata) {
        return Status.newBuilder().setCode(code.value()).setMessage("text")
                .addDetails(Any.pack(ErrorInfo.newBuilder()
                        .setDomain("reput").setReason(reason).putAllMetadata(metadata).build()))
                .build();
    }

    static Status withField(Status status, String field) {
        return status.toBuilder().addDetails(Any.pack(BadRequest.newBuilder()
                .addFieldViolations(BadRequest.FieldViolation.newBuilder().setField(field)).build())).build();
    }

    static Status withRetryAfter(Status status, int seconds) {
        return status.toBuilder().addDetails(Any.pack(RetryInfo.newBuilder()
                .setRetryDelay(Duration.newBuilder().setSeconds(seconds)).build())).build();
    }

    static ReputException error(Code code, String reason) {
        return ReputException.of(status(code, reason, Map.of()));
    }

    static ReputException unavailable() {
        return new ReputException(Code.UNAVAILABLE, "gone");
    }
}
