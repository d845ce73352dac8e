// SPDX-License-Identifier: Apache-2.0
package io.reput.bench;

import java.io.PrintStream;

/** What can be asked of a measured system. A load is made for one operation and closed after it. */
public interface Load extends AutoCloseable {
    /** Name of the topic in every system. */
    String TOPIC = "bench";

    /** Queues or partitions of the topic. */
    int QUEUE_COUNT = 4;

    /** The batched stream, for a time. */
    Result append() throws Exception;

    /** Callers that wait for each acknowledgement, for a number of calls. */
    Result latency() throws Exception;

    /** Everything from the beginning, again and again, for a time. */
    default Result read() throws Exception {
        throw new UnsupportedOperationException("this load does not read");
    }

    /** Messages by their key, for a number of calls. */
    default Result lookup() throws Exception {
        throw new UnsupportedOperationException("this load does not look up");
    }

    /** Messages for a group, each acknowledged, for a time. */
    default Result receive() throws Exception {
        throw new UnsupportedOperationException("this load does not receive");
    }

    /** Connects a load to a system, or opens it. */
    interface Opener {
        Load open(Arguments arguments) throws Exception;
    }

    /** Runs what the command line says: the result goes to standard output, and nothing else does. Never returns. */
    static void run(String[] words, Opener opener) {
        PrintStream out = System.out;
        System.setOut(System.err);
        try {
            Arguments arguments = new Arguments(words);
            try (Load load = opener.open(arguments)) {
                out.println(measured(load, arguments.operation()).toJson());
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Result measured(Load load, String operation) throws Exception {
        return switch (operation) {
            case "append" -> load.append();
            case "latency" -> load.latency();
            case "read" -> load.read();
            case "lookup" -> load.lookup();
            case "receive" -> load.receive();
            default -> throw new IllegalArgumentException("no operation " + operation);
        };
    }
}
