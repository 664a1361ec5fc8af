package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Queries (through a producer, as an application would) and the few admin calls that the tests need. */
final class Admin {
    private final Producers producers;
    private final Map<String, DefaultMQAdminExt> admins = new ConcurrentHashMap<>();

    Admin(Producers producers) {
        this.producers = producers;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("query.key", this::queryKey);
        operations.put("query.id", this::queryId);
        operations.put("topic.create", this::createTopic);
        operations.put("topic.offsets", this::topicOffsets);
        operations.put("topic.route", a -> JSON.parse(JSON.toJSONString(admin(a).examineTopicRouteInfo(a.getString("topic")))));
        operations.put("cluster.brokers", this::brokers);
    }

    /** producer, topic, key, max; begin_ms, end_ms. */
    private Object queryKey(JSONObject a) throws Exception {
        long end = a.containsKey("end_ms") ? a.getLongValue("end_ms") : Long.MAX_VALUE;
        List<Object> found = new ArrayList<>();
        var result = producers.get(a.getString("producer"))
                .queryMessage(a.getString("topic"), a.getString("key"), a.getIntValue("max"), a.getLongValue("begin_ms"), end);
        result.getMessageList().forEach(message -> found.add(describe(message)));
        return found;
    }

    /** producer, topic, msg_id: an offset id or a unique id. */
    private Object queryId(JSONObject a) throws Exception {
        return describe(producers.get(a.getString("producer")).viewMessage(a.getString("topic"), a.getString("msg_id")));
    }

    private Object createTopic(JSONObject a) throws Exception {
        int queues = a.getIntValue("queues");
        admin(a).createAndUpdateTopicConfig(a.getString("broker"), new TopicConfig(a.getString("topic"), queues, queues, 6));
        return true;
    }

    /** {queueId: [min, max]} of one topic, asked by a producer. */
    private Object topicOffsets(JSONObject a) throws Exception {
        DefaultMQProducer producer = producers.get(a.getString("producer"));
        Map<String, long[]> offsets = new HashMap<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(a.getString("topic"))) {
            offsets.put(Integer.toString(queue.getQueueId()), new long[] {producer.minOffset(queue), producer.maxOffset(queue)});
        }
        return offsets;
    }

    /** {brokerName: {brokerId: address}}. */
    private Object brokers(JSONObject a) throws Exception {
        Map<String, Object> brokers = new HashMap<>();
        for (var entry : admin(a).examineBrokerClusterInfo().getBrokerAddrTable().entrySet()) {
            Map<String, String> addresses = new HashMap<>();
            entry.getValue().getBrokerAddrs().forEach((id, address) -> addresses.put(id.toString(), address));
            brokers.put(entry.getKey(), addresses);
        }
        return brokers;
    }

    private static Object describe(MessageExt message) {
        Map<String, Object> described = new HashMap<>();
        described.put("seq", Plan.seq(message));
        described.put("digest", Plan.digest(message));
        described.put("queue", message.getQueueId());
        described.put("queue_offset", message.getQueueOffset());
        described.put("msg_id", message.getMsgId());
        described.put("keys", message.getKeys());
        described.put("tags", message.getTags());
        described.put("properties", message.getProperties());
        described.put("store_timestamp", message.getStoreTimestamp());
        described.put("body_text", message.getBody().length > 4096 ? "" : new String(message.getBody(), StandardCharsets.UTF_8));
        return described;
    }

    /** namesrv; account. One for each. */
    DefaultMQAdminExt admin(JSONObject a) {
        String account = a.containsKey("access_key") ? "-" + a.getString("access_key") : "";
        return admins.computeIfAbsent(a.getString("namesrv") + account, name -> {
            try {
                DefaultMQAdminExt admin = new DefaultMQAdminExt(Account.hook(a), 10_000L);
                admin.setNamesrvAddr(a.getString("namesrv"));
                admin.setInstanceName("admin-" + name);
                admin.start();
                return admin;
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
    }
}
