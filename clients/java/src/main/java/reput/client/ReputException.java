// SPDX-License-Identifier: Apache-2.0
package reput.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import reput.indexer.v1.KeyMatches;

/**
 * A call failed. Switch on {@link #reason}, never on the text.
 *
 * <p>A future fails with it; {@link #of} finds it in the exceptions of {@code get} and {@code join}.
 */
public final class ReputException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final Metadata.Key<byte[]> DETAILS =
            Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
    /** Codes after which it is unknown whether the call was executed. */
    private static final Set<Status.Code> LOST = Set.of(Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED,
            Status.Code.CANCELLED, Status.Code.INTERNAL, Status.Code.UNKNOWN);

    private final Status.Code code;
    private final String text;
    private final ErrorInfo info;
    private final BadRequest request;
    private final RetryInfo retry;
    private final boolean isOutcomeUnknown;

    ReputException(Status.Code code, String text) {
        this(code, text, ErrorInfo.getDefaultInstance(), null, null, false, null);
    }

    /** Takes the values of the reason, and null for values that the server did not give. */
    private ReputException(Status.Code code, String text, ErrorInfo info, BadRequest request, RetryInfo retry,
            boolean isOutcomeUnknown, Throwable cause) {
        super((info.getReason().isEmpty() ? code.name() : info.getReason()) + ": " + text, cause);
        this.code = code;
        this.text = text;
        this.info = info;
        this.request = request;
        this.retry = retry;
        this.isOutcomeUnknown = isOutcomeUnknown;
    }

    /**
     * Returns the error of a failed call from the exception that wraps it: of a future, or of a stub that was used
     * directly. Any other exception becomes an error with the code UNKNOWN and this cause.
     */
    public static ReputException of(Throwable failure) {
        Throwable inner = failure;
        while (inner.getCause() != null
                && (inner instanceof CompletionException || inner instanceof ExecutionException)) {
            inner = inner.getCause();
        }
        if (inner instanceof ReputException error) {
            return error;
        }
        return of(Status.fromThrowable(inner), Status.trailersFromThrowable(inner));
    }

    /** Returns the error that a status and its trailers, null if there are none, describe. */
    static ReputException of(Status status, Metadata trailers) {
        byte[] details = trailers == null ? null : trailers.get(DETAILS);
        Throwable cause = status.getCause();
        String text = Stream.of(status.getDescription(), cause == null ? null : cause.getMessage())
                .filter(Objects::nonNull).collect(Collectors.joining(": "));
        try {
            return of(status.getCode(), text, cause,
                    details == null ? List.of() : com.google.rpc.Status.parseFrom(details).getDetailsList());
        } catch (InvalidProtocolBufferException notOurs) { // From a proxy. The plain code is used.
            return new ReputException(status.getCode(), text);
        }
    }

    /** Returns the error of a key that could not be looked up. */
    static ReputException ofKey(KeyMatches matches) {
        ErrorInfo info = ErrorInfo.newBuilder().setReason(matches.getErrorReason()).build();
        return new ReputException(Status.Code.DATA_LOSS, matches.getErrorText(), info, null, null, false, null);
    }

    /** Returns the error that an outcome describes. Throws IllegalStateException for details that can't be read. */
    static ReputException of(com.google.rpc.Status status) {
        try {
            Status.Code code = Status.fromCodeValue(status.getCode()).getCode();
            return of(code, status.getMessage(), null, status.getDetailsList());
        } catch (InvalidProtocolBufferException failure) {
            throw new IllegalStateException("the details of a status can't be read", failure);
        }
    }

    private static ReputException of(Status.Code code, String text, Throwable cause, List<Any> details)
            throws InvalidProtocolBufferException {
        ErrorInfo info = ErrorInfo.getDefaultInstance();
        BadRequest request = null;
        RetryInfo retry = null;
        for (Any detail : details) {
            if (detail.is(ErrorInfo.class)) {
                ErrorInfo found = detail.unpack(ErrorInfo.class);
                info = found.getDomain().equals("reput") ? found : info;
            } else if (detail.is(BadRequest.class)) {
                request = detail.unpack(BadRequest.class);
            } else if (detail.is(RetryInfo.class)) {
                retry = detail.unpack(RetryInfo.class);
            }
        }
        return new ReputException(code, text, info, request, retry, false, cause);
    }

    /** Returns the error for an inconsistent answer. */
    static ReputException nonsense(RuntimeException failure) {
        return new ReputException(Status.Code.INTERNAL, "the server's answer makes no sense: " + failure.getMessage(),
                ErrorInfo.getDefaultInstance(), null, null, false, failure);
    }

    /** Returns the error for a thread that was interrupted while it waited, and leaves the thread interrupted. */
    static ReputException interrupted() {
        Thread.currentThread().interrupt();
        return new ReputException(Status.Code.CANCELLED, "the thread was interrupted");
    }

    /** Returns the error of messages that may have reached the server, and whose answer is lost. */
    ReputException withUnknownOutcome() {
        if (isOutcomeUnknown || !LOST.contains(code)) {
            return this;
        }
        String unknown = text + "; the message may or may not be stored";
        return new ReputException(code, unknown, info, request, retry, true, this);
    }

    /** gRPC's code. */
    public Status.Code code() {
        return code;
    }

    /** A reason of docs/errors.md, empty if the answer did not come from Reput. */
    public String reason() {
        return info.getReason();
    }

    /** The text without the reason, for people; it may change at any time. */
    public String text() {
        return text;
    }

    /** The values that belong to the reason: {@code field}, {@code value}, {@code limit} and others. */
    public Map<String, String> metadata() {
        return info.getMetadataMap();
    }

    /** The request's invalid fields. */
    public List<String> fields() {
        return request == null ? List.of()
                : request.getFieldViolationsList().stream().map(BadRequest.FieldViolation::getField).toList();
    }

    /** The invalid field, or several with commas, "" if the server named no field. */
    public String field() {
        return metadata().getOrDefault("field", String.join(", ", fields()));
    }

    /** The invalid value, "" if the server named no value. */
    public String value() {
        return metadata().getOrDefault("value", "");
    }

    /** The limit of the value, "" if the server named no limit. */
    public String limit() {
        return metadata().getOrDefault("limit", "");
    }

    /** The time after which another attempt makes sense, if the server gave a time. */
    public Optional<Duration> retryAfter() {
        return Optional.ofNullable(retry)
                .map(known -> Duration.ofSeconds(known.getRetryDelay().getSeconds(), known.getRetryDelay().getNanos()));
    }

    /** Whether a message that failed with this error may be stored all the same. */
    public boolean isOutcomeUnknown() {
        return isOutcomeUnknown;
    }
}
