package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.ParserConfig;
import com.alibaba.fastjson.serializer.SerializerFeature;
import com.alibaba.fastjson.util.TypeUtils;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What scenarios.yaml needs beyond the rest: messages and consumers told in full, and every method of the admin. */
final class Scenarios {
    private static final int LONGEST_TEXT = 200;

    private record Running(DefaultMQPushConsumer consumer, List<Object> received, Map<String, Integer> failures) { }

    private final Producers producers;
    private final Admin admins;
    private final Map<String, Running> consumers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullers = new ConcurrentHashMap<>();

    Scenarios(Producers producers, Admin admins) {
        this.producers = producers;
        this.admins = admins;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("scenario.send", this::send);
        operations.put("scenario.consume", this::consume);
        operations.put("scenario.received", a -> new ArrayList<>(consumers.get(a.getString("name")).received));
        operations.put("scenario.stop", this::stop);
        operations.put("scenario.pull.start", this::startPuller);
        operations.put("scenario.pull.stop", this::stopPuller);
        operations.put("scenario.pull", this::pull);
        operations.put("scenario.call", this::call);
    }

    /**
     * producer, messages (a list of {topic, body or size, tags, keys, flag, properties, delay_level, wait}); batch
     * (all in one), queue or order_key, oneway. Answers a send result for each
     * send.
     */
    private Object send(JSONObject a) throws Exception {
        DefaultMQProducer producer = producers.get(a.getString("producer"));
        List<Message> messages = new ArrayList<>();
        for (Object each : a.getJSONArray("messages")) messages.add(message((JSONObject) each));
        if (a.getBooleanValue("batch")) return List.of(told(producer.send(messages)));
        List<Object> results = new ArrayList<>();
        for (Message message : messages) {
            if (a.getBooleanValue("oneway")) producer.sendOneway(message);
            else results.add(told(sendOne(producer, message, a)));
        }
        return results;
    }

    private static SendResult sendOne(DefaultMQProducer producer, Message message, JSONObject a) throws Exception {
        if (a.containsKey("queue")) {
            List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(message.getTopic()));
            Collections.sort(queues);
            return producer.send(message, queues.get(a.getIntValue("queue")));
        }
        if (a.containsKey("order_key")) {
            return producer.send(message, (queues, m, key) -> queues.get((Integer) key % queues.size()), a.getInteger("order_key"));
        }
        return producer.send(message);
    }

    private static Message message(JSONObject a) {
        byte[] body = a.containsKey("size")
                ? "0123456789".repeat(a.getIntValue("size") / 10 + 1).substring(0, a.getIntValue("size")).getBytes(StandardCharsets.UTF_8)
                : a.getString("body").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(a.getString("topic"), body);
        if (a.containsKey("tags")) message.setTags(a.getString("tags"));
        if (a.containsKey("keys")) message.setKeys(a.getString("keys"));
        if (a.containsKey("flag")) message.setFlag(a.getIntValue("flag"));
        if (a.containsKey("delay_level")) message.setDelayTimeLevel(a.getIntValue("delay_level"));
        if (a.containsKey("wait")) message.setWaitStoreMsgOK(a.getBooleanValue("wait"));
        JSONObject properties = a.getJSONObject("properties");
        if (properties != null) {
            for (String name : properties.keySet()) message.putUserProperty(name, properties.getString(name));
        }
        return message;
    }

    private static Object told(SendResult result) {
        Map<String, Object> answer = new TreeMap<>();
        answer.put("status", result.getSendStatus().name());
        answer.put("msgId", result.getMsgId());
        answer.put("offsetMsgId", result.getOffsetMsgId());
        answer.put("queueId", result.getMessageQueue().getQueueId());
        answer.put("queueOffset", result.getQueueOffset());
        answer.put("regionId", String.valueOf(result.getRegionId()));
        answer.put("traceOn", result.isTraceOn());
        return answer;
    }

    /**
     * name, namesrv, group, topic; expression or sql, model, orderly, from (FIRST_OFFSET ...), max_reconsume, trace,
     * fail ({body: how often it is refused}), account. Each message comes alone.
     */
    private Object consume(JSONObject a) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a.getString("group"), Account.hook(a),
                new AllocateMessageQueueAveragely(), a.getBooleanValue("trace"), a.getString("trace_topic"));
        consumer.setNamesrvAddr(a.getString("namesrv"));
        consumer.setInstanceName(a.getString("name"));
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setPollNameServerInterval(Driver.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + a.getString("from")));
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), a.getString("model")));
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        // Without it a stop writes its offsets while a listener's last word is still on its way to them.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        if (a.containsKey("max_reconsume")) consumer.setMaxReconsumeTimes(a.getIntValue("max_reconsume"));
        if (a.containsKey("sql")) consumer.subscribe(a.getString("topic"), MessageSelector.bySql(a.getString("sql")));
        else consumer.subscribe(a.getString("topic"), a.getString("expression"));
        Running running = new Running(consumer, Collections.synchronizedList(new ArrayList<>()), new ConcurrentHashMap<>());
        JSONObject fail = a.getJSONObject("fail");
        if (fail != null) fail.keySet().forEach(body -> running.failures.put(body, fail.getIntValue(body)));
        if (a.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> take(running, messages.get(0))
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> take(running, messages.get(0))
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        try {
            consumer.start();
        } catch (Exception e) {
            consumer.shutdown();
            throw e;
        }
        consumers.put(a.getString("name"), running);
        return true;
    }

    private static boolean take(Running running, MessageExt message) {
        running.received.add(told(message));
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        Integer left = running.failures.computeIfPresent(body, (key, times) -> times - 1);
        return left == null || left < 0;
    }

    private Object stop(JSONObject a) {
        Running running = consumers.remove(a.getString("name"));
        running.consumer.shutdown();
        return running.received;
    }

    /** name, namesrv, group, account. */
    private Object startPuller(JSONObject a) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(a.getString("group"), Account.hook(a));
        puller.setNamesrvAddr(a.getString("namesrv"));
        puller.setInstanceName(a.getString("name"));
        puller.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        puller.start();
        pullers.put(a.getString("name"), puller);
        return true;
    }

    private Object stopPuller(JSONObject a) {
        pullers.remove(a.getString("name")).shutdown();
        return true;
    }

    /** name, broker (its name), topic, queue, expression, offset, count. */
    private Object pull(JSONObject a) throws Exception {
        var queue = new MessageQueue(a.getString("topic"), a.getString("broker"), a.getIntValue("queue"));
        var result = pullers.get(a.getString("name"))
                .pull(queue, a.getString("expression"), a.getLongValue("offset"), a.getIntValue("count"));
        List<Object> messages = new ArrayList<>();
        if (result.getMsgFoundList() != null) result.getMsgFoundList().forEach(message -> messages.add(told(message)));
        Map<String, Object> answer = new TreeMap<>();
        answer.put("status", result.getPullStatus().name());
        answer.put("next", result.getNextBeginOffset());
        answer.put("min", result.getMinOffset());
        answer.put("max", result.getMaxOffset());
        answer.put("messages", messages);
        return answer;
    }

    /** producer, or namesrv and account for an admin; method, arguments: the first method of this name that takes
     *  them. */
    private Object call(JSONObject a) throws Exception {
        Object target = a.containsKey("producer") ? producers.get(a.getString("producer")) : admins.admin(a);
        JSONArray given = a.getJSONArray("arguments");
        List<Method> methods = new ArrayList<>(Arrays.asList(target.getClass().getMethods()));
        methods.removeIf(each -> !each.getName().equals(a.getString("method")) || each.getParameterCount() != given.size());
        methods.sort(Comparator.comparing(Method::toGenericString));
        for (Method method : methods) {
            Object[] arguments = new Object[given.size()];
            try {
                for (int k = 0; k < arguments.length; k++) {
                    arguments[k] = TypeUtils.cast(given.get(k), method.getGenericParameterTypes()[k], ParserConfig.getGlobalInstance());
                }
            } catch (RuntimeException e) {
                continue;
            }
            try {
                return result(method.invoke(target, arguments));
            } catch (InvocationTargetException e) {
                throw e.getCause() instanceof Exception cause ? cause : e;
            }
        }
        throw new IllegalArgumentException("no method " + a.getString("method") + " takes " + given);
    }

    private static Object result(Object result) {
        if (result instanceof MessageExt message) return told(message);
        if (result instanceof QueryResult found) {
            List<Object> messages = new ArrayList<>();
            found.getMessageList().forEach(message -> messages.add(told(message)));
            return messages;
        }
        return JSON.parse(JSON.toJSONString(result, SerializerFeature.WriteNonStringKeyAsString, SerializerFeature.DisableCircularReferenceDetect));
    }

    private static Object told(MessageExt message) {
        Map<String, Object> told = new TreeMap<>();
        told.put("topic", message.getTopic());
        told.put("body", told(message.getBody()));
        told.put("flag", message.getFlag());
        told.put("sysFlag", message.getSysFlag());
        told.put("queueId", message.getQueueId());
        told.put("queueOffset", message.getQueueOffset());
        told.put("reconsumeTimes", message.getReconsumeTimes());
        told.put("properties", new HashMap<>(message.getProperties()));
        told.put("bornHost", message.getBornHostString());
        told.put("storeHost", message.getStoreHost().toString().replaceFirst("^.*/", ""));
        told.put("bornTimestamp", message.getBornTimestamp());
        told.put("storeTimestamp", message.getStoreTimestamp());
        told.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        told.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt client) told.put("offsetMsgId", client.getOffsetMsgId());
        return told;
    }

    private static String told(byte[] body) {
        if (body.length <= LONGEST_TEXT) return new String(body, StandardCharsets.UTF_8);
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            return body.length + " bytes " + HexFormat.of().formatHex(digest, 0, 12);
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
