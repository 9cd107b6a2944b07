package pravegabench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.UUID;

import io.netty.util.internal.PlatformDependent;
import org.apache.spark.unsafe.Platform;

/** Gathers the events of one segment into blocks, each in the memory that it is sent from. */
final class SegmentBlocks {
    private static final int APPEND_BLOCK_END = 4;
    private static final int EVENT_HEADER_BYTES = 8;
    /** A command's header, the writer's id, the size of whole events, the length of the data. */
    private static final int HEAD_BYTES = 8 + 16 + 4 + 4;
    /** The number of events, the number of the last one, the request's id. */
    private static final int TAIL_BYTES = 4 + 8 + 8;
    private static final int BLOCK_BYTES_MAX = 1020 * 1024;
    private static final int IN_FLIGHT_MAX = 8;

    /** A block that is sent and not acknowledged: it would have to be sent again. */
    private record Sent(long lastEvent, ByteBuffer block) {
    }

    final UUID writer = UUID.randomUUID();
    private final StoreAppends store;
    private final ArrayDeque<Sent> sent = new ArrayDeque<>();
    private final ArrayDeque<ByteBuffer> free = new ArrayDeque<>();
    private ByteBuffer block;
    private long address;
    private int end;
    private int events;
    private long lastEvent;

    SegmentBlocks(StoreAppends store) {
        this.store = store;
    }

    void add(Object base, long offset, int length) throws IOException {
        if (block != null && end + EVENT_HEADER_BYTES + length > HEAD_BYTES + BLOCK_BYTES_MAX) {
            flush();
        }
        if (block == null) {
            begin();
        }
        block.putLong(end, length); // The type of an event, which is 0, and its length.
        Platform.copyMemory(base, offset, null, address + end + EVENT_HEADER_BYTES, length);
        end += EVENT_HEADER_BYTES + length;
        events++;
    }

    private void begin() {
        block = free.isEmpty() ? ByteBuffer.allocateDirect(HEAD_BYTES + BLOCK_BYTES_MAX + TAIL_BYTES) : free.pop();
        address = PlatformDependent.directBufferAddress(block);
        end = HEAD_BYTES;
        events = 0;
    }

    void flush() throws IOException {
        if (block == null) {
            return;
        }
        while (sent.size() >= IN_FLIGHT_MAX) {
            store.receive(true);
        }
        lastEvent += events;
        int length = end - HEAD_BYTES;
        block.clear().putInt(APPEND_BLOCK_END).putInt(end - 8 + TAIL_BYTES);
        block.putLong(writer.getMostSignificantBits()).putLong(writer.getLeastSignificantBits());
        block.putInt(length).putInt(length);
        block.position(end).putInt(events).putLong(lastEvent).putLong(store.nextRequest());
        store.send(block.flip());
        sent.add(new Sent(lastEvent, block));
        block = null;
        store.receive(false);
    }

    /** All blocks up to an event are durable. */
    void acknowledged(long upTo) {
        while (!sent.isEmpty() && sent.peek().lastEvent <= upTo) {
            free.push(sent.poll().block);
        }
    }

    boolean isDurable() {
        return sent.isEmpty();
    }
}
