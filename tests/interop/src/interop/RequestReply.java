package interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer that asks and waits for the answer, and a consumer that answers. */
final class RequestReply {
    private final Producers producers;
    private final Map<String, DefaultMQPushConsumer> repliers = new ConcurrentHashMap<>();

    RequestReply(Producers producers) {
        this.producers = producers;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("request", this::request);
        operations.put("replier.start", this::start);
        operations.put("replier.stop", this::stop);
    }

    /** producer, topic, body, timeout_ms; answers the reply's body. By a callback: the request that waits returns in
     *  5.3.3 as soon as it is sent. (Both versions call it with null when the request has been sent.) */
    private Object request(JSONObject a) throws Exception {
        Message message = new Message(a.getString("topic"), a.getString("body").getBytes(StandardCharsets.UTF_8));
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producers.get(a.getString("producer")).request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                if (answer != null) reply.complete(answer);
            }

            @Override
            public void onException(Throwable e) {
                reply.completeExceptionally(e);
            }
        }, a.getLongValue("timeout_ms"));
        return new String(reply.get(a.getLongValue("timeout_ms") + 5000, TimeUnit.MILLISECONDS).getBody(), StandardCharsets.UTF_8);
    }

    /** name, namesrv, group, topic, producer (sends the answers); the answer to TEXT is "re: TEXT", nothing is said to
     *  "silence". */
    private Object start(JSONObject a) throws Exception {
        DefaultMQProducer producer = producers.get(a.getString("producer"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a.getString("group"));
        consumer.setNamesrvAddr(a.getString("namesrv"));
        consumer.setInstanceName(a.getString("name"));
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(a.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) reply(producer, message);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        repliers.put(a.getString("name"), consumer);
        return true;
    }

    private static void reply(DefaultMQProducer producer, MessageExt message) {
        String text = new String(message.getBody(), StandardCharsets.UTF_8);
        if (text.equals("silence")) return;
        try {
            Message reply = MessageUtil.createReplyMessage(message, ("re: " + text).getBytes(StandardCharsets.UTF_8));
            producer.send(reply, 3000);
        } catch (Exception e) {
            System.err.println("no reply to " + text + ": " + Driver.describe(e));
        }
    }

    private Object stop(JSONObject a) {
        DefaultMQPushConsumer consumer = repliers.remove(a.getString("name"));
        if (consumer != null) consumer.shutdown();
        return consumer != null;
    }
}
