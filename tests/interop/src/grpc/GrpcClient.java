package grpc;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.GsonBuilder;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

/**
 * rocketmq-client-java under the command of the tests, with the operations of grpc_drivers.py: one JSON object a line
 * on stdin, one answer a line on stdout, commands run at the same time. Ends when stdin does.
 */
public final class GrpcClient {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private final ClientConfiguration configuration;
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, SimpleConsumer> simpleConsumers = new ConcurrentHashMap<>();
    private final Map<String, MessageView> received = new ConcurrentHashMap<>();
    private final Map<String, List<Map<String, Object>>> pushed = new ConcurrentHashMap<>();
    private final Map<String, PushConsumer> pushConsumers = new ConcurrentHashMap<>();
    private final Map<String, Object> litePushConsumers = new ConcurrentHashMap<>();
    private final List<String> checked = Collections.synchronizedList(new ArrayList<>());

    private GrpcClient(String endpoints) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        GrpcClient client = new GrpcClient(args[0]);
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonObject command = GSON.fromJson(line, JsonObject.class);
            pool.execute(() -> {
                Map<String, Object> answer = new HashMap<>();
                answer.put("id", command.get("id").getAsInt());
                try {
                    answer.put("ok", client.run(command));
                } catch (Throwable e) {
                    answer.put("error", e.toString());
                }
                synchronized (answers) {
                    answers.println(GSON.toJson(answer));
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }

    private Object run(JsonObject command) throws Exception {
        switch (text(command, "op")) {
            case "producer": return startProducer(command);
            case "send": return send(command);
            case "transaction": return transaction(command);
            case "recall":
                return producers.get(text(command, "name"))
                    .recallMessage(text(command, "topic"), text(command, "handle")).getMessageId().toString();
            case "checked": return new ArrayList<>(checked);
            case "simple": return startSimple(command);
            case "receive": return receive(command);
            case "ack":
                simpleConsumers.get(text(command, "name")).ack(received.get(text(command, "key")));
                return null;
            case "change":
                simpleConsumers.get(text(command, "name")).changeInvisibleDuration(
                    received.get(text(command, "key")), Duration.ofMillis(command.get("ms").getAsLong()));
                return null;
            case "push": return startPush(command);
            case "pushed": return new ArrayList<>(pushed.get(text(command, "name")));
            case "lite": return startLite(command);
            case "subscribe_lite": return subscribeLite(command);
            case "lite_topics":
                return new ArrayList<>((Collection<?>) of("LitePushConsumer", litePushConsumers.get(text(command, "name")),
                    "getLiteTopicSet"));
            case "stop": return stop(text(command, "name"));
            default: throw new IllegalArgumentException(text(command, "op"));
        }
    }

    private Object startProducer(JsonObject command) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(text(command, "topic"));
        if (command.has("resolution")) {
            TransactionResolution resolution = TransactionResolution.valueOf(text(command, "resolution"));
            builder.setTransactionChecker(view -> {
                checked.add(body(view));
                return resolution;
            });
        }
        producers.put(text(command, "name"), builder.build());
        return null;
    }

    private static Message message(JsonObject command) throws Exception {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(text(command, "topic"))
            .setBody(text(command, "body").getBytes(StandardCharsets.UTF_8));
        if (command.has("tag")) builder.setTag(text(command, "tag"));
        if (command.has("group")) builder.setMessageGroup(text(command, "group"));
        if (command.has("delay_ms"))
            builder.setDeliveryTimestamp(System.currentTimeMillis() + command.get("delay_ms").getAsLong());
        // Not of every release that this is compiled with.
        if (command.has("priority"))
            call(MessageBuilder.class.getMethod("setPriority", int.class), builder, command.get("priority").getAsInt());
        if (command.has("lite"))
            call(MessageBuilder.class.getMethod("setLiteTopic", String.class), builder, text(command, "lite"));
        return builder.build();
    }

    /** Calls a method of one of the consumers that not every release has. */
    private static Object of(String type, Object object, String name, Object... arguments) throws Exception {
        for (Method method : Class.forName("org.apache.rocketmq.client.apis.consumer." + type).getMethods())
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length)
                return call(method, object, arguments);
        throw new NoSuchMethodException(type + "." + name);
    }

    /** A LitePushConsumer that fails the first delivery of each body that begins with "fail". */
    private Object startLite(JsonObject command) throws Exception {
        String type = "LitePushConsumerBuilder";
        List<Map<String, Object>> entries = Collections.synchronizedList(new ArrayList<>());
        pushed.put(text(command, "name"), entries);
        MessageListener listener = view -> {
            Map<String, Object> entry = entry(view);
            try {
                entry.put("lite", ((Optional<?>) call(MessageView.class.getMethod("getLiteTopic"), view)).orElse(null));
            } catch (Exception error) {
                entry.put("lite", error.toString());
            }
            entries.add(entry);
            boolean fails = body(view).startsWith("fail") && view.getDeliveryAttempt() == 1;
            return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
        Object builder = call(ClientServiceProvider.class.getMethod("newLitePushConsumerBuilder"), PROVIDER);
        of(type, builder, "setClientConfiguration", configuration);
        of(type, builder, "setConsumerGroup", text(command, "group"));
        of(type, builder, "bindTopic", text(command, "topic"));
        of(type, builder, "setMessageListener", listener);
        litePushConsumers.put(text(command, "name"), of(type, builder, "build"));
        return null;
    }

    private Object subscribeLite(JsonObject command) throws Exception {
        Object consumer = litePushConsumers.get(text(command, "name"));
        if (!command.has("first")) return of("LitePushConsumer", consumer, "subscribeLite", text(command, "lite"));
        Object first = Class.forName("org.apache.rocketmq.client.apis.consumer.OffsetOption")
            .getField("MIN_OFFSET").get(null);
        return of("LitePushConsumer", consumer, "subscribeLite", text(command, "lite"), first);
    }

    private static Object call(Method method, Object of, Object... arguments) throws Exception {
        try {
            return method.invoke(of, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause() instanceof Exception ? (Exception) error.getCause() : error;
        }
    }

    private Object send(JsonObject command) throws Exception {
        SendReceipt receipt = producers.get(text(command, "name")).send(message(command));
        Map<String, Object> answer = new HashMap<>();
        answer.put("message_id", receipt.getMessageId().toString());
        answer.put("recall_handle", receipt.getRecallHandle());
        return answer;
    }

    private Object transaction(JsonObject command) throws Exception {
        Producer producer = producers.get(text(command, "name"));
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message(command), transaction);
        if (text(command, "end").equals("COMMIT")) transaction.commit();
        if (text(command, "end").equals("ROLLBACK")) transaction.rollback();
        return receipt.getMessageId().toString();
    }

    private Object startSimple(JsonObject command) throws Exception {
        simpleConsumers.put(text(command, "name"), PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(text(command, "group"))
            .setAwaitDuration(Duration.ofMillis(command.get("await_ms").getAsLong()))
            .setSubscriptionExpressions(subscription(command)).build());
        return null;
    }

    private Object receive(JsonObject command) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (MessageView view : simpleConsumers.get(text(command, "name")).receive(command.get("max").getAsInt(),
                Duration.ofMillis(command.get("invisible_ms").getAsLong()))) {
            found.add(entry(view));
            received.put((String) found.get(found.size() - 1).get("key"), view);
        }
        return found;
    }

    private Object startPush(JsonObject command) throws Exception {
        List<Map<String, Object>> entries = Collections.synchronizedList(new ArrayList<>());
        int failures = command.get("failures").getAsInt();
        pushed.put(text(command, "name"), entries);
        pushConsumers.put(text(command, "name"), PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(text(command, "group"))
            .setSubscriptionExpressions(subscription(command))
            .setMessageListener(view -> {
                entries.add(entry(view));
                return view.getDeliveryAttempt() <= failures ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build());
        return null;
    }

    private Object stop(String name) throws Exception {
        if (producers.containsKey(name)) producers.remove(name).close();
        if (simpleConsumers.containsKey(name)) simpleConsumers.remove(name).close();
        if (pushConsumers.containsKey(name)) pushConsumers.remove(name).close();
        if (litePushConsumers.containsKey(name)) ((AutoCloseable) litePushConsumers.remove(name)).close();
        return null;
    }

    private static Map<String, FilterExpression> subscription(JsonObject command) {
        return Collections.singletonMap(text(command, "topic"), new FilterExpression(text(command, "tag")));
    }

    private static Map<String, Object> entry(MessageView view) {
        Map<String, Object> entry = new HashMap<>();
        entry.put("key", view.getMessageId() + "/" + view.getDeliveryAttempt());
        entry.put("message_id", view.getMessageId().toString());
        entry.put("body", body(view));
        entry.put("tag", view.getTag().orElse(null));
        entry.put("group", view.getMessageGroup().orElse(null));
        entry.put("attempt", view.getDeliveryAttempt());
        entry.put("at_ms", System.currentTimeMillis());
        return entry;
    }

    private static String body(MessageView view) {
        ByteBuffer buffer = view.getBody();
        return StandardCharsets.UTF_8.decode(buffer.duplicate()).toString();
    }

    private static String text(JsonObject command, String name) {
        return command.get(name).getAsString();
    }
}
