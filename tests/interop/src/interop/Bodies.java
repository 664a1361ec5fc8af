package interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

/**
 * What RocketMQ's RemotingSerializable reads in a body. Each line on stdin is "class TAB body in base64"; each line on
 * stdout is "= base64 of what it wrote again" or "! why it was not read". 4.9 and 5.x keep the classes in
 * different packages, hence by name only.
 */
public final class Bodies {
    private static final String[] PACKAGES = {
        "common.", "common.admin.", "common.message.", "common.subscription.", "common.protocol.body.",
        "common.protocol.header.", "common.protocol.heartbeat.", "common.protocol.route.",
        "common.protocol.topic.", "remoting.protocol.",
        "remoting.protocol.admin.", "remoting.protocol.body.", "remoting.protocol.header.",
        "remoting.protocol.heartbeat.", "remoting.protocol.route.", "remoting.protocol.subscription.",
        "remoting.protocol.topic.",
    };

    private Bodies() {
    }

    public static void main(String[] args) throws Exception {
        // Logging may print to System.out: the answers have a stream of their own.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Class<?> serializable = Class.forName("org.apache.rocketmq.remoting.protocol.RemotingSerializable");
        Method decode = serializable.getMethod("decode", byte[].class, Class.class);
        Method encode = serializable.getMethod("encode", Object.class);
        Map<String, Class<?>> types = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int tab = line.indexOf('\t');
            byte[] body = Base64.getDecoder().decode(line.substring(tab + 1));
            String name = line.substring(0, tab);
            if (!types.containsKey(name)) types.put(name, find(name));
            out.println(answer(decode, encode, types.get(name), body));
        }
        out.flush();
    }

    private static String answer(Method decode, Method encode, Class<?> type, byte[] body) throws Exception {
        try {
            Object read = decode.invoke(null, body, type);
            if (read == null) return "! nothing";
            return "= " + Base64.getEncoder().encodeToString((byte[]) encode.invoke(null, read));
        } catch (InvocationTargetException e) {
            return "! " + String.valueOf(e.getCause()).replaceAll("\\s+", " ");
        }
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName("org.apache.rocketmq." + place + name);
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
