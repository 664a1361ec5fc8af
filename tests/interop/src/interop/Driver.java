package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The Java client under the command of the Python tests: one JSON object a line on stdin, one answer a line on
 * stdout, commands run at the same time. {"id": 7, "op": "send", ...} is answered by {"id": 7, "ok": ...} or
 * {"id": 7, "error": "..."}. Ends when stdin does.
 */
public final class Driver {
    /** Instead of 30 s: when two heartbeats of a 5.3.3 consumer meet, the one with the new subscription is lost, and
     *  its pulls are refused (code 25) until the next. */
    static final int HEARTBEAT_MS = 2000;

    interface Operation {
        Object run(JSONObject arguments) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Map<String, Operation> operations = new HashMap<>();
        Producers producers = new Producers();
        producers.register(operations);
        new PushConsumers().register(operations);
        new LitePullConsumers().register(operations);
        new RequestReply(producers).register(operations);
        new Transactions().register(operations);
        Admin admins = new Admin(producers);
        admins.register(operations);
        new Scenarios(producers, admins).register(operations);
        new AdminTool().register(operations);
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject command = JSON.parseObject(line);
            pool.execute(() -> {
                String answer = answer(operations, command).toJSONString();
                synchronized (answers) {
                    answers.println(answer);
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }

    private static JSONObject answer(Map<String, Operation> operations, JSONObject command) {
        JSONObject answer = new JSONObject();
        answer.put("id", command.getIntValue("id"));
        try {
            Operation operation = operations.get(command.getString("op"));
            if (operation == null) throw new IllegalArgumentException("no operation " + command.getString("op"));
            answer.put("ok", operation.run(command));
        } catch (Throwable e) {
            answer.put("error", Driver.describe(e));
        }
        return answer;
    }

    static String describe(Throwable e) {
        StringBuilder text = new StringBuilder(e.toString());
        for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) text.append(" <- ").append(cause);
        return text.toString();
    }
}
