package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Asynchronous sends at a rate, and a DefaultMQPushConsumer that waits for them: PushLatencies NAME_SERVER.
 *
 * <p>Each line of stdin, "TOPIC QUEUES RATE TOTAL BODY_BYTES", is a run on a new topic: RATE messages a second from one
 * thread. It is answered with a line of key=value figures: latencies from the moment a message was due to its listener
 * (p50_us ...), and to the answer to its send (publish_p50_us ...). A send that fails is counted, not sent again.
 * missing and duplicates are of those that were taken. Ends with stdin.
 */
public final class PushLatencies {
    private static final int TRIES = 300;
    private static final int TRY_MS = 100;
    private static final long QUIET_MS = 5_000;
    private static final int BODY_HEAD = Integer.BYTES;  // the message's number, PROBE before the run
    private static final int PROBE = -1;
    private final PrintStream figures = System.out;
    private final DefaultMQProducer producer = new DefaultMQProducer("bench-push");
    private final String nameServer;

    private PushLatencies(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) {
        try {
            new PushLatencies(args[0]).serve();
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1);  // the client's threads would keep the JVM
        }
        System.exit(0);
    }

    private void serve() throws Exception {
        System.setOut(System.err);  // whatever the client's libraries print
        producer.setNamesrvAddr(nameServer);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in));
        for (String line = runs.readLine(); line != null; line = runs.readLine()) {
            String[] words = line.split(" ");
            int[] numbers = Arrays.stream(words).skip(1).mapToInt(Integer::parseInt).toArray();
            if (numbers[3] < BODY_HEAD) throw new IllegalArgumentException("BODY_BYTES: at least " + BODY_HEAD);
            figures.println(new Run(words[0], numbers[0], numbers[1], numbers[2], numbers[3]).figures());
        }
        producer.shutdown();
    }

    /** Until something succeeds: a broker that has just started may not be registered yet. */
    private interface Attempt {
        void run() throws Exception;
    }

    private static void untilItWorks(Attempt attempt) throws Exception {
        for (int left = TRIES; ; left--) {
            try {
                attempt.run();
                return;
            } catch (MQClientException notYet) {
                if (left == 0) throw notYet;
                Thread.sleep(TRY_MS);
            }
        }
    }

    private final class Run {
        private final String topic;
        private final int queues;
        private final int rate;
        private final int total;
        private final int bodyBytes;
        private final AtomicLongArray due;
        private final AtomicLongArray answered;
        private final AtomicLongArray arrived;
        private final AtomicInteger answers = new AtomicInteger();
        private final AtomicInteger refused = new AtomicInteger();
        private final AtomicInteger arrivals = new AtomicInteger();
        private final AtomicInteger duplicates = new AtomicInteger();
        private final CountDownLatch probes;

        Run(String topic, int queues, int rate, int total, int bodyBytes) {
            this.topic = topic;
            this.queues = queues;
            this.rate = rate;
            this.total = total;
            this.bodyBytes = bodyBytes;
            due = new AtomicLongArray(total);
            answered = new AtomicLongArray(total);
            arrived = new AtomicLongArray(total);
            probes = new CountDownLatch(queues);
        }

        String figures() throws Exception {
            untilItWorks(() -> producer.createTopic("TBW102", topic, queues));
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-push-" + topic);
            consumer.setNamesrvAddr(nameServer);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) take(ByteBuffer.wrap(message.getBody()).getInt());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            try {
                awaitConsumer();
                long begin = System.nanoTime();
                send(begin);
                double seconds = (System.nanoTime() - begin) / 1e9;
                awaitRest();
                return text(seconds);
            } finally {
                consumer.shutdown();
            }
        }

        private void take(int number) {
            if (number == PROBE) {
                probes.countDown();
                return;
            }
            if (arrived.getAndSet(number, System.nanoTime()) != 0) duplicates.incrementAndGet();
            arrivals.incrementAndGet();
        }

        /** One message to each queue: when all have come, the consumer waits at the end of each. */
        private void awaitConsumer() throws Exception {
            List<MessageQueue> known = new ArrayList<>();
            untilItWorks(() -> known.addAll(producer.fetchPublishMessageQueues(topic)));
            for (MessageQueue queue : known) producer.send(message(PROBE), queue);
            if (!probes.await((long) TRIES * TRY_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("the consumer got none of " + probes.getCount() + " queues");
            }
        }

        private Message message(int number) {
            return new Message(topic, ByteBuffer.allocate(bodyBytes).putInt(number).array());
        }

        private void send(long begin) throws Exception {
            for (int n = 0; n < total; n++) {
                long dueNs = begin + n * 1_000_000_000L / rate;
                for (long left; (left = dueNs - System.nanoTime()) > 0; ) LockSupport.parkNanos(left);
                due.set(n, dueNs);
                int number = n;
                producer.send(message(n), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        if (result.getSendStatus() == SendStatus.SEND_OK) answered.set(number, System.nanoTime());
                        else refused.incrementAndGet();
                        answers.incrementAndGet();
                    }

                    @Override
                    public void onException(Throwable failed) {
                        refused.incrementAndGet();
                        answers.incrementAndGet();
                    }
                });
            }
        }

        /** Until everything has come, or nothing comes any more. */
        private void awaitRest() throws InterruptedException {
            long quietSince = System.nanoTime();
            for (int before = -1; answers.get() < total || arrivals.get() < total - refused.get(); ) {
                int now = answers.get() + arrivals.get();
                if (now != before) quietSince = System.nanoTime();
                else if (System.nanoTime() - quietSince > QUIET_MS * 1_000_000) return;
                before = now;
                Thread.sleep(TRY_MS);
            }
        }

        private String text(double seconds) {
            int missing = 0;
            for (int n = 0; n < total; n++) if (answered.get(n) != 0 && arrived.get(n) == 0) missing++;
            return String.format("total=%d msg_per_s=%.0f not_success=%d missing=%d duplicates=%d %s %s", total, total / seconds,
                    total - count(answered), missing, duplicates.get(), latencies("", arrived), latencies("publish_", answered));
        }

        private int count(AtomicLongArray times) {
            return (int) IntStream.range(0, total).filter(n -> times.get(n) != 0).count();
        }

        private String latencies(String prefix, AtomicLongArray ends) {
            long[] us = IntStream.range(0, total).filter(n -> ends.get(n) != 0)
                    .mapToLong(n -> (ends.get(n) - due.get(n)) / 1_000).sorted().toArray();
            if (us.length == 0) throw new IllegalStateException("no message came");
            return String.format("%1$sp50_us=%2$d %1$sp99_us=%3$d %1$sp999_us=%4$d %1$smax_us=%5$d", prefix, us[us.length / 2],
                    us[(int) (us.length * .99)], us[(int) (us.length * .999)], us[us.length - 1]);
        }
    }
}
