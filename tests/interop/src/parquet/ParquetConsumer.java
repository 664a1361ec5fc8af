package parquet;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What a team without a source for Spark writes: a DefaultLitePullConsumer whose messages go to a Parquet file with the
 * columns of the format rocketmq, uncompressed: ParquetConsumer NAME_SERVER.
 *
 * <p>Each line of stdin, "TOPIC MESSAGES FILE", reads that many messages from the topic's beginning, and is answered with
 * a line of key=value figures: messages, and the seconds and the processor seconds of this process. Ends with stdin.
 */
public final class ParquetConsumer {
    private static final int PULL_BATCH = 32;
    private static final long POLL_MS = 1_000;
    private static final int MOST_EMPTY_POLLS = 30;

    private ParquetConsumer() {
    }

    public static void main(String[] args) {
        PrintStream figures = System.out;
        System.setOut(System.err);  // whatever the libraries print
        try {
            BufferedReader runs = new BufferedReader(new InputStreamReader(System.in));
            for (String line = runs.readLine(); line != null; line = runs.readLine()) {
                String[] words = line.split(" ");
                figures.println(run(args[0], words[0], Integer.parseInt(words[1]), words[2]));
            }
        } catch (Exception failed) {
            failed.printStackTrace();
            System.exit(1);  // the client's threads would keep the JVM
        }
        System.exit(0);
    }

    private static String run(String nameServer, String topic, int messages, String file) throws Exception {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-parquet");
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(PULL_BATCH);
        consumer.start();
        try {
            long begin = System.nanoTime();
            long beginCpu = process.getProcessCpuTime();
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            consumer.assign(queues);
            for (MessageQueue queue : queues) consumer.seekToBegin(queue);
            new File(file).delete();
            int read = 0;
            try (ParquetWriter<MessageExt> writer = new Builder(new LocalOutputFile(Paths.get(file))).build()) {
                for (int empty = 0; read < messages && empty < MOST_EMPTY_POLLS; ) {
                    int before = read;
                    for (MessageExt message : consumer.poll(POLL_MS)) {
                        writer.write(message);
                        read++;
                    }
                    empty = read == before ? empty + 1 : 0;
                }
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            double cpuSeconds = (process.getProcessCpuTime() - beginCpu) / 1e9;
            return String.format("messages=%d seconds=%.4f cpu_s=%.4f", read, seconds, cpuSeconds);
        } finally {
            consumer.shutdown();
        }
    }

    private static final class Builder extends ParquetWriter.Builder<MessageExt, Builder> {
        Builder(OutputFile file) {
            super(file);
            withDictionaryEncoding("body", false);
        }

        @Override
        protected Builder self() {
            return this;
        }

        @Override
        protected WriteSupport<MessageExt> getWriteSupport(Configuration configuration) {
            return new Rows();
        }
    }

    private static final class Rows extends WriteSupport<MessageExt> {
        private static final MessageType SCHEMA = MessageTypeParser.parseMessageType("message row {"
                + " optional binary topic (STRING); optional binary broker_name (STRING); optional int32 queue_id;"
                + " optional int64 queue_offset; optional binary message_id (STRING);"
                + " optional binary offset_message_id (STRING); optional binary keys (STRING);"
                + " optional binary tags (STRING); optional group properties (MAP) { repeated group key_value {"
                + " required binary key (STRING); optional binary value (STRING); } } optional binary body;"
                + " optional binary body_problem (STRING); optional int64 born_timestamp (TIMESTAMP(MILLIS,true));"
                + " optional binary born_host (STRING); optional int64 store_timestamp (TIMESTAMP(MILLIS,true));"
                + " optional binary store_host (STRING); optional int32 reconsume_times; optional int32 flag;"
                + " optional int32 sys_flag; optional int64 physical_offset; }");
        private RecordConsumer out;

        @Override
        public WriteContext init(Configuration configuration) {
            return new WriteContext(SCHEMA, new HashMap<>());
        }

        @Override
        public void prepareForWrite(RecordConsumer consumer) {
            out = consumer;
        }

        @Override
        public void write(MessageExt message) {
            out.startMessage();
            text("topic", 0, message.getTopic());
            text("broker_name", 1, message.getBrokerName());
            number("queue_id", 2, message.getQueueId());
            number("queue_offset", 3, message.getQueueOffset());
            text("message_id", 4, message.getMsgId());
            text("offset_message_id", 5, idOf(message));
            text("keys", 6, message.getKeys());
            text("tags", 7, message.getTags());
            properties(message.getProperties());
            bytes("body", 9, message.getBody());
            number("born_timestamp", 11, message.getBornTimestamp());
            text("born_host", 12, hostOf(message.getBornHost()));
            number("store_timestamp", 13, message.getStoreTimestamp());
            text("store_host", 14, hostOf(message.getStoreHost()));
            number("reconsume_times", 15, message.getReconsumeTimes());
            number("flag", 16, message.getFlag());
            number("sys_flag", 17, message.getSysFlag());
            number("physical_offset", 18, message.getCommitLogOffset());
            out.endMessage();
        }

        private static String idOf(MessageExt message) {
            return ((org.apache.rocketmq.common.message.MessageClientExt) message).getOffsetMsgId();
        }

        private static String hostOf(SocketAddress address) {
            return address.toString().substring(1);
        }

        private void properties(Map<String, String> properties) {
            if (properties.isEmpty()) return;
            out.startField("properties", 8);
            out.startGroup();
            out.startField("key_value", 0);
            for (Map.Entry<String, String> pair : properties.entrySet()) {
                out.startGroup();
                text("key", 0, pair.getKey());
                text("value", 1, pair.getValue());
                out.endGroup();
            }
            out.endField("key_value", 0);
            out.endGroup();
            out.endField("properties", 8);
        }

        private void text(String name, int index, String value) {
            if (value != null) bytes(name, index, value.getBytes(StandardCharsets.UTF_8));
        }

        private void bytes(String name, int index, byte[] value) {
            out.startField(name, index);
            out.addBinary(Binary.fromConstantByteArray(value));
            out.endField(name, index);
        }

        private void number(String name, int index, int value) {
            out.startField(name, index);
            out.addInteger(value);
            out.endField(name, index);
        }

        private void number(String name, int index, long value) {
            out.startField(name, index);
            out.addLong(value);
            out.endField(name, index);
        }
    }
}
