package interop;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.Message;

/** The content of message number seq, a function of (seed, seq) only, and the digest both ends take of it. */
final class Plan {
    static final String SEQ = "u_seq";
    private static final int KIB = 1024;
    private static final int JUST_UNDER_4_MIB = 4 * KIB * KIB - 4 * KIB;
    private static final String[] TAGS = {"TagA", "TagB", "TagC", "标签"};
    private static final String[] WORDS = {"message ", "сообщение ", "消息", "μήνυμα ", "רשומה ", "🚀", "e\u0301 ", "ﷺ", "\"\\{}:,'\n"};

    private final long seed;
    private final String profile;
    private final byte[] block;

    /** profile: "small" (under 4 KiB), "volume" (some at 64 KiB, 1 MiB and just under 4 MiB), or "load": sizes of
     *  "volume" with bodies that cost the client nothing, and no digests. */
    Plan(long seed, String profile) {
        this.seed = seed;
        this.profile = profile;
        block = profile.equals("load") ? bytes(random(-1), JUST_UNDER_4_MIB) : null;
    }

    int size(int seq) {
        if (!profile.equals("small")) {
            if (seq % 25000 == 11) return JUST_UNDER_4_MIB;
            if (seq % 5000 == 7) return KIB * KIB;
            if (seq % 1000 == 3) return 64 * KIB;
        }
        SplittableRandom random = random(seq);
        return random.nextInt(8) == 0 ? 1 + random.nextInt(4 * KIB - 1) : 1 + random.nextInt(600);
    }

    Message message(String topic, int seq) {
        if (block != null) return plain(topic, seq);
        SplittableRandom random = random(seq);
        byte[] body = seq % 2 == 0 ? bytes(random, size(seq)) : text(random, size(seq)).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, TAGS[seq % TAGS.length], "key-" + seq + " ключ-" + seq, body);
        message.putUserProperty(SEQ, Integer.toString(seq));
        message.putUserProperty("u_世界", text(random, 40));
        return message;
    }

    private Message plain(String topic, int seq) {
        int size = size(seq);
        int from = Math.min(seq % KIB, block.length - size);
        Message message = new Message(topic, TAGS[seq % TAGS.length], "key-" + seq, Arrays.copyOfRange(block, from, from + size));
        message.putUserProperty(SEQ, Integer.toString(seq));
        return message;
    }

    /** The digest for the ledger of what is sent. */
    String digestOf(Message message) {
        return block != null ? "-" : digest(message);
    }

    static String digest(Message message) {
        try {
            MessageDigest sha = MessageDigest.getInstance("SHA-256");
            part(sha, message.getTags());
            part(sha, message.getKeys());
            for (Map.Entry<String, String> property : new TreeMap<>(message.getProperties()).entrySet()) {
                if (property.getKey().startsWith("u_")) {
                    part(sha, property.getKey());
                    part(sha, property.getValue());
                }
            }
            sha.update(message.getBody());
            return HexFormat.of().formatHex(sha.digest(), 0, 12);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static int seq(Message message) {
        String value = message.getUserProperty(SEQ);
        return value == null ? -1 : Integer.parseInt(value);
    }

    private static void part(MessageDigest sha, String text) {
        byte[] bytes = String.valueOf(text).getBytes(StandardCharsets.UTF_8);
        sha.update((bytes.length + ":").getBytes(StandardCharsets.UTF_8));
        sha.update(bytes);
    }

    private SplittableRandom random(int seq) {
        return new SplittableRandom(seed * 1_000_003L + seq);
    }

    private static byte[] bytes(SplittableRandom random, int size) {
        byte[] body = new byte[size];
        random.nextBytes(body);
        return body;
    }

    /** Text of at most size bytes of UTF-8, at least one character. */
    private static String text(SplittableRandom random, int size) {
        StringBuilder text = new StringBuilder("t");
        int used = 1;
        while (true) {
            String word = WORDS[random.nextInt(WORDS.length)];
            used += word.getBytes(StandardCharsets.UTF_8).length;
            if (used > size) return text.toString();
            text.append(word);
        }
    }
}
