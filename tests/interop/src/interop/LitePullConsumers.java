package interop;

import com.alibaba.fastjson.JSONObject;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumer with assigned or subscribed queues, polled by a thread of its own. */
final class LitePullConsumers {
    private static final class Running {
        DefaultLitePullConsumer consumer;
        Ledger ledger;
        Thread poller;
        volatile boolean stopped;

        void poll() {
            while (!stopped) {
                List<MessageExt> messages = consumer.poll(100);
                messages.forEach(message -> PushConsumers.record(ledger, message));
            }
        }
    }

    private final Map<String, Running> consumers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("lite.start", this::start);
        operations.put("lite.stop", this::stop);
        operations.put("lite.count", a -> get(a).ledger.flushedLines());
        operations.put("lite.seek", this::seek);
        operations.put("lite.offset_for_time", this::offsetForTime);
        operations.put("lite.committed", this::committed);
    }

    /** name, namesrv, group, topic, ledger, from (as push.start); assign (all queues of the topic), expression,
     *  sql. */
    private Object start(JSONObject a) throws Exception {
        Running running = new Running();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(a.getString("group"), Account.hook(a));
        running.consumer = consumer;
        running.ledger = new Ledger(a.getString("ledger"));
        consumer.setNamesrvAddr(a.getString("namesrv"));
        consumer.setInstanceName(a.getString("name"));
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + a.getString("from")));
        consumer.setPullBatchSize(32);
        consumer.setAutoCommitIntervalMillis(1000);
        if (a.containsKey("sql")) consumer.subscribe(a.getString("topic"), MessageSelector.bySql(a.getString("sql")));
        else if (!a.getBooleanValue("assign")) consumer.subscribe(a.getString("topic"), a.getString("expression"));
        try {
            consumer.start();
        } catch (Exception e) {
            consumer.shutdown();
            throw e;
        }
        if (a.getBooleanValue("assign")) consumer.assign(consumer.fetchMessageQueues(a.getString("topic")));
        running.poller = new Thread(running::poll, "poll-" + a.getString("name"));
        running.poller.start();
        consumers.put(a.getString("name"), running);
        return true;
    }

    private Object stop(JSONObject a) throws Exception {
        Running running = get(a);
        consumers.remove(a.getString("name"));
        running.stopped = true;
        running.poller.join();
        running.consumer.commitSync();
        running.consumer.shutdown();
        long lines = running.ledger.flushedLines();
        running.ledger.close();
        return lines;
    }

    private Object seek(JSONObject a) throws Exception {
        get(a).consumer.seek(queue(a), a.getLongValue("offset"));
        return true;
    }

    private Object offsetForTime(JSONObject a) throws Exception {
        return get(a).consumer.offsetForTimestamp(queue(a), a.getLongValue("time_ms"));
    }

    private Object committed(JSONObject a) throws Exception {
        Map<String, Long> offsets = new HashMap<>();
        Collection<MessageQueue> queues = get(a).consumer.fetchMessageQueues(a.getString("topic"));
        for (MessageQueue queue : queues) {
            offsets.put(Integer.toString(queue.getQueueId()), get(a).consumer.committed(queue));
        }
        return offsets;
    }

    private MessageQueue queue(JSONObject a) throws Exception {
        for (MessageQueue queue : get(a).consumer.fetchMessageQueues(a.getString("topic"))) {
            if (queue.getQueueId() == a.getIntValue("queue")) return queue;
        }
        throw new IllegalArgumentException("no queue " + a.getIntValue("queue"));
    }

    private Running get(JSONObject a) {
        Running running = consumers.get(a.getString("name"));
        if (running == null) throw new IllegalArgumentException("no lite pull consumer " + a.getString("name"));
        return running;
    }
}
