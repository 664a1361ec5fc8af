package interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPushConsumer: concurrent and orderly, clustering and broadcasting. */
final class PushConsumers {
    private record Running(DefaultMQPushConsumer consumer, Ledger ledger, Set<Integer> refused, Set<Integer> never,
                           Set<Integer> slow, long slowMs) { }

    private final Map<String, Running> consumers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("push.start", this::start);
        operations.put("push.stop", this::stop);
        operations.put("push.count", a -> get(a).ledger.flushedLines());
        operations.put("push.queues", this::queues);
        operations.put("push.pop_queues", this::popQueues);
        operations.put("push.suspend", this::suspend);
    }

    /**
     * name, namesrv, group, topic, expression, ledger; sql (an expression of SQL92, used instead), model, orderly, from (first, last, timestamp), timestamp
     * (yyyyMMddHHmmss), refuse (numbers that are refused the first time they come), refuse_always (numbers that are
     * noted and refused each time), max_reconsume, poll_ms (routes are asked for so often), pull_batch, broker_rebalance
     * (5.x: the broker says which queues, and whether they are pulled or popped), pop_invisible_ms, slow (numbers that
     * take slow_ms the first time). The note of a message that comes again is its tag, # and how often it came back.
     */
    private Object start(JSONObject a) throws Exception {
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(a.getString("group"), Account.hook(a), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(a.getString("namesrv"));
        consumer.setInstanceName(a.getString("name"));
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + a.getString("from")));
        if (a.containsKey("poll_ms")) consumer.setPollNameServerInterval(a.getIntValue("poll_ms"));
        if (a.containsKey("pull_batch")) consumer.setPullBatchSize(a.getIntValue("pull_batch"));
        if (a.containsKey("timestamp")) consumer.setConsumeTimestamp(a.getString("timestamp"));
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), a.getString("model")));
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        // What is behind a refused message of a batch comes again, too: one at a time where that is counted.
        consumer.setConsumeMessageBatchMaxSize(a.containsKey("refuse_always") || a.containsKey("slow") ? 1 : 32);
        if (a.containsKey("sql")) consumer.subscribe(a.getString("topic"), MessageSelector.bySql(a.getString("sql")));
        else consumer.subscribe(a.getString("topic"), a.getString("expression"));
        if (a.containsKey("max_reconsume")) consumer.setMaxReconsumeTimes(a.getIntValue("max_reconsume"));
        if (a.getBooleanValue("broker_rebalance")) set(consumer, "setClientRebalance", boolean.class, false);
        if (a.containsKey("pop_invisible_ms")) {
            set(consumer, "setPopInvisibleTime", long.class, a.getLongValue("pop_invisible_ms"));
        }
        Running running = new Running(consumer, new Ledger(a.getString("ledger")), ConcurrentHashMap.newKeySet(),
                ConcurrentHashMap.newKeySet(), ConcurrentHashMap.newKeySet(), a.getLongValue("slow_ms"));
        if (a.containsKey("slow")) running.slow.addAll(a.getJSONArray("slow").toJavaList(Integer.class));
        if (a.containsKey("refuse_always")) running.never.addAll(a.getJSONArray("refuse_always").toJavaList(Integer.class));
        if (a.containsKey("refuse")) running.refused.addAll(a.getJSONArray("refuse").toJavaList(Integer.class));
        listen(running, a.getBooleanValue("orderly"));
        try {
            consumer.start();
        } catch (Exception e) {
            // A refused subscription leaves a client that goes on with its heartbeats.
            consumer.shutdown();
            throw e;
        }
        consumers.put(a.getString("name"), running);
        return true;
    }

    /** A setter of 5.x, which 4.9 does not have. */
    private static void set(DefaultMQPushConsumer consumer, String setter, Class<?> type, Object value) throws Exception {
        DefaultMQPushConsumer.class.getMethod(setter, type).invoke(consumer, value);
    }

    private static void listen(Running running, boolean orderly) {
        if (orderly) {
            running.consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> record(running.ledger, message));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            running.consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (int k = 0; k < messages.size(); k++) {
                    if (running.slow.remove(Plan.seq(messages.get(k)))) sleep(running.slowMs);
                    if (running.never.contains(Plan.seq(messages.get(k)))) {
                        record(running.ledger, messages.get(k));
                        context.setAckIndex(k - 1);
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    }
                    if (running.refused.remove(Plan.seq(messages.get(k)))) {
                        context.setAckIndex(k - 1);
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    }
                    record(running.ledger, messages.get(k));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static void record(Ledger ledger, MessageExt message) {
        String offsetId = message instanceof MessageClientExt client ? client.getOffsetMsgId() : "";
        ledger.add(Plan.seq(message), Plan.digest(message), String.valueOf(message.getBrokerName()), message.getQueueId(),
                message.getQueueOffset(), message.getMsgId(), offsetId,
                message.getTags() + (message.getReconsumeTimes() > 0 ? "#" + message.getReconsumeTimes() : ""));
    }

    private Object stop(JSONObject a) throws Exception {
        Running running = get(a);
        consumers.remove(a.getString("name"));
        running.consumer.shutdown();
        long lines = running.ledger.flushedLines();
        running.ledger.close();
        return lines;
    }

    /** name, suspended: whether it stops pulling; what was pulled is still consumed. */
    private Object suspend(JSONObject a) {
        DefaultMQPushConsumer consumer = get(a).consumer;
        if (a.getBooleanValue("suspended")) consumer.suspend();
        else consumer.resume();
        return true;
    }

    /** The queues of the topic that this consumer holds now, sorted. */
    private Object queues(JSONObject a) {
        List<Integer> held = new ArrayList<>();
        new HashSet<>(get(a).consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet())
                .stream().filter(queue -> queue.getTopic().equals(a.getString("topic")))
                .sorted().forEach(queue -> held.add(queue.getQueueId()));
        return held;
    }

    /** The queues of the topic that this consumer pops now, sorted; -1: any queue of a broker. 5.x only. */
    private Object popQueues(JSONObject a) throws Exception {
        Object rebalance = get(a).consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        List<Integer> popped = new ArrayList<>();
        for (Object key : new HashSet<>(((Map<?, ?>) rebalance.getClass().getMethod("getPopProcessQueueTable").invoke(rebalance)).keySet())) {
            MessageQueue queue = (MessageQueue) key;
            if (queue.getTopic().equals(a.getString("topic"))) popped.add(queue.getQueueId());
        }
        popped.sort(null);
        return popped;
    }

    private Running get(JSONObject a) {
        Running running = consumers.get(a.getString("name"));
        if (running == null) throw new IllegalArgumentException("no push consumer " + a.getString("name"));
        return running;
    }
}
