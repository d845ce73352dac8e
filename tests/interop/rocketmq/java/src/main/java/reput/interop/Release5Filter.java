// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * RocketMQ's own filters. Reads questions, one JSON object a line: an expression, and the properties of messages.
 * Answers each with a JSON list: true, false, null (unknown) or "error" of each message, or "refused" alone.
 */
public final class Release5Filter {
    private static final class Question {
        String expression;
        List<Map<String, String>> messages;
    }

    private record Properties(Map<String, String> values) implements EvaluationContext {
        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return Map.copyOf(values);
        }
    }

    private Release5Filter() {
    }

    public static void main(String[] arguments) throws Exception {
        Gson json = new Gson().newBuilder().serializeNulls().create();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(json.toJson(answer(json.fromJson(line, Question.class))));
        }
    }

    private static List<Object> answer(Question question) {
        Expression expression;
        try {
            expression = SelectorParser.parse(question.expression);
        } catch (MQFilterException | Error refused) {
            return List.of("refused");
        }
        List<Object> answers = new ArrayList<>();
        for (Map<String, String> message : question.messages) {
            try {
                answers.add(expression.evaluate(new Properties(message)));
            } catch (Exception failed) {
                answers.add("error");
            }
        }
        return answers;
    }
}
