package interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** What was sent or received, one tab-separated line a message; the Python side compares two of them. */
final class Ledger {
    private final BufferedWriter out;
    private long lines;

    Ledger(String path) throws IOException {
        out = Files.newBufferedWriter(Path.of(path));
    }

    /** Columns: seq, digest, broker, queueId, queueOffset, msgId, offsetMsgId, note (send status, or tag). */
    synchronized void add(int seq, String digest, String broker, int queueId, long queueOffset, String msgId,
                          String offsetMsgId, String note) {
        try {
            out.write(seq + "\t" + digest + "\t" + broker + "\t" + queueId + "\t" + queueOffset + "\t" + msgId
                    + "\t" + offsetMsgId + "\t" + note + "\n");
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
        lines++;
    }

    synchronized long flushedLines() throws IOException {
        out.flush();
        return lines;
    }

    synchronized void close() throws IOException {
        out.close();
    }
}
