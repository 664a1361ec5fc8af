package interop;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQProducer in all its ways to send. */
final class Producers {
    private static final int ASYNC_WINDOW = 64;
    private static final int BATCH = 32;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Sending> underWay = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("producer.start", this::start);
        operations.put("producer.stop", this::stop);
        operations.put("send", this::send);
        operations.put("send.one", this::sendOne);
        operations.put("recall", this::recall);
        operations.put("send.count", this::countSent);
        operations.put("send.stop", this::stopSending);
    }

    DefaultMQProducer get(String name) {
        DefaultMQProducer producer = producers.get(name);
        if (producer == null) throw new IllegalArgumentException("no producer " + name);
        return producer;
    }

    /** name, namesrv, group; compress_over (bytes), poll_ms (routes are asked for so often), timeout_ms (of a
     *  send with its retries: a request whose broker dies takes all of it), trace (send a message about each
     *  message) and trace_topic, account as Account.java says. */
    private Object start(JSONObject a) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(a.getString("group"), Account.hook(a),
                a.getBooleanValue("trace"), a.getString("trace_topic"));
        producer.setNamesrvAddr(a.getString("namesrv"));
        producer.setInstanceName(a.getString("name"));
        producer.setSendMsgTimeout(a.containsKey("timeout_ms") ? a.getIntValue("timeout_ms") : 10_000);
        if (a.containsKey("compress_over")) producer.setCompressMsgBodyOverHowmuch(a.getIntValue("compress_over"));
        if (a.containsKey("poll_ms")) producer.setPollNameServerInterval(a.getIntValue("poll_ms"));
        producer.start();
        producers.put(a.getString("name"), producer);
        return true;
    }

    private Object stop(JSONObject a) {
        DefaultMQProducer producer = producers.remove(a.getString("name"));
        if (producer != null) producer.shutdown();
        return producer != null;
    }

    /** producer, topic, body, tags, keys, properties; queue, delay_level, delay_ms, delay_sec, deliver_ms,
     *  wait (false: for no flush and no slave), recallable. Answers the send result. */
    private Object sendOne(JSONObject a) throws Exception {
        DefaultMQProducer producer = get(a.getString("producer"));
        Message message = new Message(a.getString("topic"), a.getString("tags"), a.getString("keys"),
                a.getString("body").getBytes(java.nio.charset.StandardCharsets.UTF_8));
        JSONObject properties = a.getJSONObject("properties");
        if (properties != null) {
            for (String name : properties.keySet()) message.putUserProperty(name, properties.getString(name));
        }
        if (a.containsKey("delay_level")) message.setDelayTimeLevel(a.getIntValue("delay_level"));
        if (a.containsKey("delay_ms")) of5x(message, "setDelayTimeMs", a.getLongValue("delay_ms"));
        if (a.containsKey("delay_sec")) of5x(message, "setDelayTimeSec", a.getLongValue("delay_sec"));
        if (a.containsKey("deliver_ms")) of5x(message, "setDeliverTimeMs", a.getLongValue("deliver_ms"));
        if (a.containsKey("wait")) message.setWaitStoreMsgOK(a.getBooleanValue("wait"));
        SendResult result = a.containsKey("queue")
                ? producer.send(message, queues(producer, a.getString("topic")).get(a.getIntValue("queue")))
                : producer.send(message);
        Map<String, Object> answer = new HashMap<>();
        answer.put("status", result.getSendStatus().name());
        answer.put("msg_id", result.getMsgId());
        answer.put("offset_msg_id", result.getOffsetMsgId());
        answer.put("queue", result.getMessageQueue().getQueueId());
        answer.put("queue_offset", result.getQueueOffset());
        if (a.containsKey("recallable"))
            answer.put("recall_handle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        return answer;
    }

    /** A setter that the 4.9 client has not. */
    private static void of5x(Message message, String setter, long value) throws Exception {
        Message.class.getMethod(setter, long.class).invoke(message, value);
    }

    /** producer, topic, handle. Answers the id of the recalled message. */
    private Object recall(JSONObject a) throws Exception {
        DefaultMQProducer producer = get(a.getString("producer"));
        return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, a.getString("topic"), a.getString("handle"));
    }

    /**
     * producer, topic, kind, first, count, seed, profile, ledger; rate (messages a second, not of ordered),
     * delay_level. While it
     * runs, send.count gives the lines of its ledger and send.stop ends it early.
     * kind: sync, async, oneway, batch, selector, or ordered (sync and batch in turn, a thread for each queue,
     * number seq to queue seq % queues). Answers {"sent", "errors"}.
     */
    private Object send(JSONObject a) throws Exception {
        Ledger ledger = new Ledger(a.getString("ledger"));
        Sending sending = new Sending(get(a.getString("producer")), a, ledger);
        underWay.put(a.getString("ledger"), sending);
        switch (a.getString("kind")) {
            case "sync" -> sending.each(sending::sync);
            case "async" -> sending.async();
            case "oneway" -> sending.each(sending::oneway);
            case "batch" -> sending.batches();
            case "selector" -> sending.each(sending::selector);
            case "ordered" -> sending.ordered();
            default -> throw new IllegalArgumentException(a.getString("kind"));
        }
        underWay.remove(a.getString("ledger"));
        Map<String, Object> answer = new HashMap<>();
        answer.put("sent", ledger.flushedLines());
        answer.put("errors", sending.errors);
        ledger.close();
        return answer;
    }

    /** ledger: of a send under way; -1 when it has ended. */
    private Object countSent(JSONObject a) throws Exception {
        Sending sending = underWay.get(a.getString("ledger"));
        return sending == null ? -1 : sending.ledger.flushedLines();
    }

    /** ledger: of the send that is to end; nothing happens when it has ended. */
    private Object stopSending(JSONObject a) {
        Sending sending = underWay.get(a.getString("ledger"));
        if (sending != null) sending.stopped = true;
        return sending != null;
    }

    private static List<MessageQueue> queues(DefaultMQProducer producer, String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(topic));
        Collections.sort(queues);
        return queues;
    }

    private interface OneSend {
        void send(int seq, Message message) throws Exception;
    }

    private static final class Sending {
        final DefaultMQProducer producer;
        final String topic;
        final int first;
        final int count;
        final double rate;
        final int delayLevel;
        final Plan plan;
        final Ledger ledger;
        final List<String> errors = Collections.synchronizedList(new ArrayList<>());
        final long start = System.nanoTime();
        volatile boolean stopped;

        Sending(DefaultMQProducer producer, JSONObject a, Ledger ledger) {
            this.producer = producer;
            this.ledger = ledger;
            topic = a.getString("topic");
            first = a.getIntValue("first");
            count = a.getIntValue("count");
            rate = a.getDoubleValue("rate");
            delayLevel = a.getIntValue("delay_level");
            plan = new Plan(a.getLongValue("seed"), a.getString("profile"));
        }

        void each(OneSend one) {
            for (int seq = first; seq < first + count && !stopped; seq++) {
                pace(seq);
                guarded(seq, one);
            }
        }

        private void pace(int seq) {
            if (rate > 0) LockSupport.parkNanos(start + (long) ((seq - first) * 1e9 / rate) - System.nanoTime());
        }

        void guarded(int seq, OneSend one) {
            try {
                Message message = plan.message(topic, seq);
                if (delayLevel > 0) message.setDelayTimeLevel(delayLevel);
                one.send(seq, message);
            } catch (Exception e) {
                errors.add("seq " + seq + ": " + Driver.describe(e));
            }
        }

        void sync(int seq, Message message) throws Exception {
            String digest = plan.digestOf(message);
            record(seq, digest, producer.send(message));
        }

        void selector(int seq, Message message) throws Exception {
            String digest = plan.digestOf(message);
            record(seq, digest, producer.send(message, (queues, m, arg) -> queues.get((Integer) arg % queues.size()), seq));
        }

        void oneway(int seq, Message message) throws Exception {
            String digest = plan.digestOf(message);
            producer.sendOneway(message);
            ledger.add(seq, digest, "", -1, -1, "", "", "ONEWAY");
        }

        void async() throws InterruptedException {
            Semaphore window = new Semaphore(ASYNC_WINDOW);
            each((seq, message) -> {
                String digest = plan.digestOf(message);
                window.acquire();
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        record(seq, digest, result);
                        window.release();
                    }

                    @Override
                    public void onException(Throwable e) {
                        errors.add("seq " + seq + ": " + Driver.describe(e));
                        window.release();
                    }
                });
            });
            if (!window.tryAcquire(ASYNC_WINDOW, 30, TimeUnit.SECONDS)) errors.add("async sends without an answer");
        }

        void batches() throws Exception {
            for (int from = first; from < first + count && !stopped; from += BATCH) {
                pace(from);
                List<Integer> numbers = new ArrayList<>();
                for (int seq = from; seq < Math.min(from + BATCH, first + count); seq++) numbers.add(seq);
                batch(numbers, null);
            }
        }

        void ordered() throws Exception {
            List<MessageQueue> queues = queues(producer, topic);
            List<Thread> threads = new ArrayList<>();
            for (MessageQueue queue : queues) {
                threads.add(new Thread(() -> orderedTo(queue, queues.size()), "send-" + queue.getQueueId()));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) thread.join();
        }

        private void orderedTo(MessageQueue queue, int queues) {
            List<Integer> pending = new ArrayList<>();
            for (int seq = first; seq < first + count; seq++) {
                if (seq % queues != queue.getQueueId()) continue;
                boolean single = plan.size(seq) > 8192 || (seq / 1024) % 4 == 0;
                if (!single) pending.add(seq);
                if (single || pending.size() == BATCH) flush(pending, queue);
                if (single) guarded(seq, (n, message) -> {
                    String digest = plan.digestOf(message);
                    record(n, digest, producer.send(message, queue));
                });
            }
            flush(pending, queue);
        }

        private void flush(List<Integer> pending, MessageQueue queue) {
            if (pending.isEmpty()) return;
            batch(pending, queue);
            pending.clear();
        }

        /** One batch; queue null lets the client choose. */
        private void batch(List<Integer> numbers, MessageQueue queue) {
            List<Message> messages = new ArrayList<>();
            List<String> digests = new ArrayList<>();
            for (int seq : numbers) {
                Message message = plan.message(topic, seq);
                messages.add(message);
                digests.add(plan.digestOf(message));
            }
            try {
                SendResult result = queue == null ? producer.send(messages) : producer.send(messages, queue);
                String[] ids = result.getMsgId().split(",");
                String[] offsetIds = result.getOffsetMsgId().split(",");
                // An inner batch, of a topic with batch consume queues, has one id of each kind.
                boolean isOne = ids.length == 1 && offsetIds.length == 1;
                for (int k = 0; k < digests.size(); k++) {
                    ledger.add(numbers.get(k), digests.get(k), result.getMessageQueue().getBrokerName(),
                            result.getMessageQueue().getQueueId(), result.getQueueOffset() + k,
                            ids[isOne ? 0 : k], offsetIds[isOne ? 0 : k],
                            result.getSendStatus().name());
                }
            } catch (Exception e) {
                errors.add("batch from " + numbers.get(0) + ": " + Driver.describe(e));
            }
        }

        private void record(int seq, String digest, SendResult result) {
            MessageQueue queue = result.getMessageQueue();
            ledger.add(seq, digest, queue.getBrokerName(), queue.getQueueId(), result.getQueueOffset(), result.getMsgId(),
                    result.getOffsetMsgId(), result.getSendStatus().name());
        }
    }
}
