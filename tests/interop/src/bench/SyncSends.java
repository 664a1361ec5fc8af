package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Synchronous sends of a DefaultMQProducer, measured: SyncSends NAME_SERVER.
 *
 * <p>Each line of stdin, "TOPIC THREADS TOTAL BODY_BYTES", is a run: THREADS threads send TOTAL / THREADS messages
 * each, one after the other. It is answered with a line of key=value figures; latencies are those of send(). A send
 * that fails is counted, not sent again. Ends with stdin.
 */
public final class SyncSends {
    private static final int ROUTE_TRIES = 300;
    private static final int ROUTE_WAIT_MS = 100;
    private final PrintStream figures = System.out;
    private final DefaultMQProducer producer = new DefaultMQProducer("bench-client");

    public static void main(String[] args) {
        try {
            new SyncSends().serve(args[0]);
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1);  // the client's threads would keep the JVM
        }
        System.exit(0);
    }

    private void serve(String nameServer) throws Exception {
        System.setOut(System.err);  // whatever the client's libraries print
        producer.setNamesrvAddr(nameServer);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in));
        for (String line = runs.readLine(); line != null; line = runs.readLine()) {
            String[] words = line.split(" ");
            Message message = new Message(words[0], "TagA", new byte[Integer.parseInt(words[3])]);
            awaitRoute(message);
            figures.println(run(message, Integer.parseInt(words[1]), Integer.parseInt(words[2])));
        }
        producer.shutdown();
    }

    /** One message is sent before each run: it makes the topic, and waits for a broker that still registers. */
    private void awaitRoute(Message message) throws Exception {
        for (int left = ROUTE_TRIES; ; left--) {
            try {
                producer.send(message);
                return;
            } catch (MQClientException noRoute) {
                if (left == 0) throw noRoute;
                Thread.sleep(ROUTE_WAIT_MS);
            }
        }
    }

    private String run(Message like, int threads, int total) throws InterruptedException {
        long[][] took = new long[threads][total / threads];
        AtomicInteger refused = new AtomicInteger();
        CountDownLatch start = new CountDownLatch(1);
        Thread[] senders = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            long[] mine = took[t];
            senders[t] = new Thread(() -> send(like, mine, start, refused));
            senders[t].start();
        }
        long begin = System.nanoTime();
        start.countDown();
        for (Thread sender : senders) sender.join();
        double seconds = (System.nanoTime() - begin) / 1e9;
        long[] all = Arrays.stream(took).flatMapToLong(Arrays::stream).sorted().toArray();
        return String.format("threads=%d total=%d msg_per_s=%.0f p50_us=%d p99_us=%d p999_us=%d max_us=%d not_success=%d",
                threads, all.length, all.length / seconds, all[all.length / 2], all[(int) (all.length * .99)],
                all[(int) (all.length * .999)], all[all.length - 1], refused.get());
    }

    private void send(Message like, long[] tookUs, CountDownLatch start, AtomicInteger refused) {
        try {
            start.await();
        } catch (InterruptedException ended) {
            return;
        }
        for (int i = 0; i < tookUs.length; i++) {
            Message message = new Message(like.getTopic(), like.getTags(), like.getBody());
            long begin = System.nanoTime();
            boolean taken;
            try {
                taken = producer.send(message).getSendStatus() == SendStatus.SEND_OK;
            } catch (Exception failed) {
                taken = false;
            }
            tookUs[i] = (System.nanoTime() - begin) / 1_000;
            if (!taken) refused.incrementAndGet();
        }
    }
}
