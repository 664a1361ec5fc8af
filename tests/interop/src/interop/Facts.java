package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.io.File;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.rocketmq.remoting.CommandCustomHeader;

/**
 * What a release's own classes say of the protocol: its codes, the fields of every header, the attributes of topics
 * and groups. Prints one JSON object; the class path is that of a client of 5.x.
 */
public final class Facts {
    private static final String PROTOCOL = "org/apache/rocketmq/remoting/protocol/";

    private Facts() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> facts = new TreeMap<>();
        facts.put("requestCodes", constants("RequestCode"));
        facts.put("responseCodes", constants("ResponseCode"));
        facts.put("headers", headers());
        facts.put("topicAttributes", attributes("TopicAttributes"));
        facts.put("groupAttributes", attributes("SubscriptionGroupAttributes"));
        System.out.println(JSON.toJSONString(facts, SerializerFeature.PrettyFormat, SerializerFeature.MapSortField));
    }

    private static Map<String, Integer> constants(String name) throws Exception {
        Map<String, Integer> found = new TreeMap<>();
        // By name: in 4.9, for whose client this is compiled, too, they are elsewhere.
        for (Class<?> each = Class.forName(PROTOCOL.replace('/', '.') + name); each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) && field.getType() == int.class) {
                    field.setAccessible(true);
                    found.put(field.getName(), field.getInt(null));
                }
            }
        }
        return found;
    }

    /** Class to its own fields and those that it inherits. */
    private static Map<String, List<String>> headers() throws Exception {
        Map<String, List<String>> found = new TreeMap<>();
        File jar = new File(CommandCustomHeader.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        try (JarFile file = new JarFile(jar)) {
            for (Enumeration<JarEntry> all = file.entries(); all.hasMoreElements();) {
                String name = all.nextElement().getName();
                if (!name.startsWith(PROTOCOL) || !name.endsWith(".class")) continue;
                Class<?> type = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'));
                if (!CommandCustomHeader.class.isAssignableFrom(type) || Modifier.isAbstract(type.getModifiers())) continue;
                found.put(type.getSimpleName(), fields(type));
            }
        }
        return found;
    }

    private static List<String> fields(Class<?> type) {
        TreeMap<String, Boolean> found = new TreeMap<>();
        for (Class<?> each = type; each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) found.put(field.getName(), true);
            }
        }
        return new ArrayList<>(found.keySet());
    }

    private static List<String> attributes(String type) throws Exception {
        Class<?> found = Class.forName("org.apache.rocketmq.common." + type);
        Map<?, ?> all = (Map<?, ?>) found.getField("ALL").get(null);
        List<String> names = new ArrayList<>();
        for (Object name : all.keySet()) names.add((String) name);
        names.sort(null);
        return names;
    }
}
