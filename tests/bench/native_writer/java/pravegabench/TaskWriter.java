package pravegabench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.google.common.hash.HashFunction;
import com.google.common.hash.Hashing;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Frames the events of a task where they lie in Spark's rows, into blocks of the segments of its transaction. */
final class TaskWriter implements DataWriter<InternalRow> {
    private static final HashFunction HASH = Hashing.murmur3_128("EventRouter".hashCode());
    private static final int KEYS_REMEMBERED_MAX = 65_536;

    private final NativeWriter.Target[] targets;
    private final int key;
    private final int event;
    private final StoreAppends store;
    private final List<SegmentBlocks> blocks = new ArrayList<>();
    private final Map<UTF8String, SegmentBlocks> known = new HashMap<>();

    private record Done() implements WriterCommitMessage {
    }

    TaskWriter(NativeWriter.Target[] targets, int port, int key, int event) {
        this.targets = targets;
        this.key = key;
        this.event = event;
        try {
            store = new StoreAppends(port);
            for (NativeWriter.Target target : targets) {
                blocks.add(store.writerOf(target.segment()));
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void write(InternalRow row) throws IOException {
        SegmentBlocks into = blocksOf(row.getUTF8String(key));
        if (row instanceof UnsafeRow unsafe) {
            long place = unsafe.getLong(event); // Of a value without a fixed width: its offset in the row, and its length.
            into.add(unsafe.getBaseObject(), unsafe.getBaseOffset() + (int) (place >> 32), (int) place);
            return;
        }
        byte[] bytes = row.getBinary(event);
        into.add(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    }

    private SegmentBlocks blocksOf(UTF8String text) {
        SegmentBlocks found = known.get(text);
        if (found == null) {
            found = blocks.get(indexOf(text.toString()));
            if (known.size() < KEYS_REMEMBERED_MAX) {
                known.put(text.copy(), found); // The row's memory is used again.
            }
        }
        return found;
    }

    private int indexOf(String text) {
        long bits = HASH.hashString(text, StandardCharsets.UTF_16LE).asLong();
        double position = Double.longBitsToDouble(0x3FF0000000000000L | (bits >>> 12)) - 1.0;
        int index = 0;
        while (index < targets.length - 1 && position >= targets[index].keyHigh()) {
            index++;
        }
        return index;
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
        for (SegmentBlocks one : blocks) {
            one.flush();
        }
        store.awaitAll();
        return new Done();
    }

    @Override
    public void abort() {
    }

    @Override
    public void close() throws IOException {
        store.close();
    }
}
