import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends each text as a message: Producer NAME_SERVER TOPIC TEXT... */
public final class Producer {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("example-producer");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        try {
            for (int i = 2; i < args.length; i++) {
                byte[] body = args[i].getBytes(StandardCharsets.UTF_8);
                SendResult result = producer.send(new Message(args[1], "TagA", "key-" + i, body));
                System.out.println(result.getSendStatus() + " " + result.getMsgId());
            }
        } finally {
            producer.shutdown();
        }
    }
}
