package interop;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The mqadmin of the client's release, one command at a time within this JVM: a JVM for each would take a second of
 * both cores. What a command prints is taken from System.out and System.err, which are this JVM's.
 */
final class AdminTool {
    private static final int POLL_MS = 20;

    void register(Map<String, Driver.Operation> operations) {
        operations.put("mqadmin", this::run);
    }

    /**
     * args, limit_ms; lines: a command that goes on for ever is interrupted when it has printed so many. Answers
     * {"out", "err", "ended"}: ended is false when it took longer than limit_ms. Arguments that the command does not
     * take end the JVM. rocketmq.home.dir of this JVM must have conf/logback_tools.xml.
     */
    private synchronized Object run(JSONObject a) throws Exception {
        forgetCommands();
        String[] args = a.getJSONArray("args").toArray(new String[0]);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        boolean ended;
        try {
            Thread command = new Thread(() -> MQAdminStartup.main0(args, null), "mqadmin");
            command.setDaemon(true);
            command.start();
            ended = await(command, out, a.getIntValue("lines"), a.getLongValue("limit_ms"));
        } finally {
            System.setOut(realOut);
            System.setErr(realErr);
        }
        Map<String, Object> answer = new HashMap<>();
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        answer.put("ended", ended);
        return answer;
    }

    /** Some commands keep their clients, which are shut down, in fields; main0 registers all anew. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (field.getType() != List.class) continue;
            field.setAccessible(true);
            ((List<?>) field.get(null)).clear();
        }
    }

    /** A 5.3.3 client that is shut down waits up to three seconds for a thread that waits for an event. */
    private static void hurry(Thread command) {
        for (StackTraceElement frame : command.getStackTrace()) {
            if (!frame.getClassName().endsWith(".ServiceThread") || !frame.getMethodName().equals("shutdown")) continue;
            Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> thread.getName().equals("NettyEventExecutor")).forEach(Thread::interrupt);
            return;
        }
    }

    private static boolean await(Thread command, ByteArrayOutputStream out, int lines, long limitMs) throws Exception {
        long end = System.nanoTime() + limitMs * 1_000_000;
        boolean interrupted = false;
        while (command.isAlive() && System.nanoTime() < end) {
            command.join(POLL_MS);
            hurry(command);
            if (lines > 0 && !interrupted && out.toString(StandardCharsets.UTF_8).lines().count() >= lines) {
                command.interrupt();
                interrupted = true;
            }
        }
        return !command.isAlive();
    }
}
