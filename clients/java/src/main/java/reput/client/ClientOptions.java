// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * The addresses and credentials of the services. Made by {@link #load}, from the environment and defaults.
 *
 * @param commitlog host:port of the CommitLog, or several, separated by commas
 * @param indexer host:port of the Indexer, or several, separated by commas
 * @param caFile PEM file of the authorities, or "system" for the authorities of Java; turns TLS on; "" for no TLS
 * @param certificateFile PEM file of a certificate to show to the server; "" for none
 * @param keyFile PEM file (PKCS #8) of the certificate's key; "" for none
 * @param token bearer token that is sent with every call; "" for none
 * @param timeout longest time of a call with all its retries, and of closing a producer
 * @param retry policy for failed calls
 */
public record ClientOptions(String commitlog, String indexer, String caFile, String certificateFile, String keyFile,
        String token, Duration timeout, RetryPolicy retry) {
    /**
     * Throws IllegalArgumentException for an address list without an address, a time-out of 0, or half a certificate.
     */
    public ClientOptions {
        if (targets(commitlog).isEmpty() || targets(indexer).isEmpty()) {
            throw new IllegalArgumentException("commitlog and indexer need an address, host:port");
        }
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("timeout must be above zero");
        }
        if (certificateFile.isEmpty() != keyFile.isEmpty() || (caFile.isEmpty() && !keyFile.isEmpty())) {
            throw new IllegalArgumentException("certificateFile needs keyFile and caFile, and keyFile needs them, too");
        }
    }

    /**
     * Returns the options of the environment, and the defaults for the others: 127.0.0.1:7101 and 127.0.0.1:7102,
     * without TLS and token, 30 s, {@link RetryPolicy#DEFAULT}. Throws UncheckedIOException for a token file that can't
     * be read.
     */
    public static ClientOptions load() {
        return load(System.getenv());
    }

    static ClientOptions load(Map<String, String> environment) {
        return new ClientOptions(
                variable(environment, "COMMITLOG_TARGET", variable(environment, "STORE_TARGET", "127.0.0.1:7101")),
                variable(environment, "INDEXER_TARGET", variable(environment, "STORE_TARGET", "127.0.0.1:7102")),
                variable(environment, "CA_FILE", ""),
                variable(environment, "CERTIFICATE_FILE", ""),
                variable(environment, "KEY_FILE", ""),
                token(environment),
                Duration.ofSeconds(30),
                RetryPolicy.DEFAULT);
    }

    /** Returns a copy for another store: {@code store} is the address of its gateway, which serves all APIs. */
    public ClientOptions at(String store) {
        return withCommitlog(store).withIndexer(store);
    }

    /** Returns a copy for other CommitLogs. */
    public ClientOptions withCommitlog(String commitlog) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns a copy for other Indexers. */
    public ClientOptions withIndexer(String indexer) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns a copy with TLS, given the authorities. */
    public ClientOptions withCaFile(String caFile) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns a copy with a client certificate; the authorities (withCaFile) must be set first. */
    public ClientOptions withCertificate(String certificateFile, String keyFile) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns a copy with a token. */
    public ClientOptions withToken(String token) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns a copy with another time-out. */
    public ClientOptions withTimeout(Duration timeout) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns a copy with other retries. */
    public ClientOptions withRetry(RetryPolicy retry) {
        return new ClientOptions(commitlog, indexer, caFile, certificateFile, keyFile, token, timeout, retry);
    }

    /** Returns the addresses and the authorities, without the token. */
    @Override
    public String toString() {
        return "ClientOptions[commitlog=" + commitlog + ", indexer=" + indexer + ", caFile=" + caFile + "]";
    }

    /** Returns the addresses of a list. */
    static List<String> targets(String list) {
        return Arrays.stream(list.split(",")).map(String::strip).filter(target -> !target.isEmpty()).toList();
    }

    private static String variable(Map<String, String> environment, String name, String otherwise) {
        String value = environment.getOrDefault("REPUT_CLIENT_" + name, "");
        return value.isEmpty() ? otherwise : value;
    }

    private static String token(Map<String, String> environment) {
        String token = variable(environment, "TOKEN", "");
        String file = variable(environment, "TOKEN_FILE", "");
        if (!token.isEmpty() || file.isEmpty()) {
            return token;
        }
        try {
            return Files.readString(Path.of(file)).strip().split("\\s", 2)[0];
        } catch (IOException failure) {
            throw new UncheckedIOException("the token file can't be read", failure);
        }
    }
}
