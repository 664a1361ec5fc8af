package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** TransactionMQProducer: what its local transactions come to, and what it answers when it is asked. */
final class Transactions {
    private final Map<String, Running> producers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("transaction.start", this::start);
        operations.put("transaction.stop", this::stop);
        operations.put("transaction.send", this::send);
        operations.put("transaction.answer", this::answer);
        operations.put("transaction.checks", a -> new ArrayList<>(get(a).checks));
    }

    private Running get(JSONObject a) {
        Running running = producers.get(a.getString("producer"));
        if (running == null) throw new IllegalArgumentException("no transaction producer " + a.getString("producer"));
        return running;
    }

    /** name, namesrv, group, answer (COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW: to whoever asks), poll_ms (routes are
     *  asked for so often). */
    private Object start(JSONObject a) throws Exception {
        Running running = new Running(new TransactionMQProducer(a.getString("group")));
        running.answer = LocalTransactionState.valueOf(a.getString("answer"));
        running.producer.setNamesrvAddr(a.getString("namesrv"));
        running.producer.setInstanceName(a.getString("name"));
        running.producer.setSendMsgTimeout(10_000); // A cold JVM on a busy machine takes more than the usual 3 s.
        running.producer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        running.producer.setPollNameServerInterval(a.getIntValue("poll_ms"));
        running.producer.setTransactionListener(running);
        running.producer.start();
        producers.put(a.getString("name"), running);
        return true;
    }

    private Object stop(JSONObject a) {
        Running running = producers.remove(a.getString("name"));
        if (running != null) running.producer.shutdown();
        return running != null;
    }

    /** producer, answer: from now on. */
    private Object answer(JSONObject a) {
        get(a).answer = LocalTransactionState.valueOf(a.getString("answer"));
        return true;
    }

    /** producer, topic, first, count, seed, profile, ledger, states (number seq comes to states[seq % size]),
     *  late_ms (how long each local transaction takes). The note of a message is the status of its half. */
    private Object send(JSONObject a) throws Exception {
        Running running = get(a);
        Plan plan = new Plan(a.getLongValue("seed"), a.getString("profile"));
        Ledger ledger = new Ledger(a.getString("ledger"));
        JSONArray states = a.getJSONArray("states");
        List<String> errors = new ArrayList<>();
        int first = a.getIntValue("first");
        for (int seq = first; seq < first + a.getIntValue("count"); seq++) {
            Message message = plan.message(a.getString("topic"), seq);
            String digest = plan.digestOf(message);
            Outcome outcome = new Outcome(LocalTransactionState.valueOf(states.getString(seq % states.size())), a.getLongValue("late_ms"));
            try {
                SendResult result = running.producer.sendMessageInTransaction(message, outcome);
                ledger.add(seq, digest, result.getMessageQueue().getBrokerName(), result.getMessageQueue().getQueueId(),
                        result.getQueueOffset(), result.getMsgId(), "", result.getSendStatus().name());
            } catch (Exception e) {
                errors.add("seq " + seq + ": " + Driver.describe(e));
            }
        }
        Map<String, Object> answer = new HashMap<>();
        answer.put("sent", ledger.flushedLines());
        answer.put("errors", errors);
        ledger.close();
        return answer;
    }

    private record Outcome(LocalTransactionState state, long lateMs) { }

    private static final class Running implements TransactionListener {
        final TransactionMQProducer producer;
        final List<Map<String, Object>> checks = Collections.synchronizedList(new ArrayList<>());
        volatile LocalTransactionState answer;

        Running(TransactionMQProducer producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            Outcome outcome = (Outcome) argument;
            try {
                Thread.sleep(outcome.lateMs());
            } catch (InterruptedException e) {
                return LocalTransactionState.UNKNOW;
            }
            return outcome.state();
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Map<String, Object> check = new HashMap<>();
            check.put("seq", Plan.seq(message));
            check.put("digest", Plan.digest(message));
            check.put("topic", message.getTopic());
            check.put("times", Integer.parseInt(message.getProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES)));
            checks.add(check);
            return answer;
        }
    }
}
