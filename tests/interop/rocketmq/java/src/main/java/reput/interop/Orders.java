// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonWriter;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;

/**
 * Orders from standard input: a JSON object with `do` per line, one line of answer for each on standard output. Any
 * failure ends the process with code 1, as nothing is expected to fail.
 */
final class Orders {
    private Orders() {
    }

    /** Does what an order says, and writes the fields of its answer. */
    interface Servant {
        void obey(JsonObject order) throws Exception;
    }

    /** Obey until the input ends, and end the process. */
    static void serve(Function<JsonWriter, Servant> make) {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Writer lines = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        JsonWriter out = new JsonWriter(lines);
        out.setStrictness(Strictness.LENIENT); // one answer after the other
        out.setHtmlSafe(false);
        out.setSerializeNulls(true);
        System.setOut(System.err);
        try {
            Servant servant = make.apply(out);
            String line;
            while ((line = in.readLine()) != null) {
                out.beginObject();
                servant.obey(JsonParser.parseString(line).getAsJsonObject());
                out.endObject();
                out.flush();
                lines.write('\n');
                lines.flush();
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }
}
