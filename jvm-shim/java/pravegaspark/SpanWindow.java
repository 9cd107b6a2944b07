package pravegaspark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * Receives the bytes of one span and finds the events in them.
 *
 * <p>Some requests are ahead. A reply is received where its bytes belong; one that is shorter than asked for leaves a
 * gap, for which it asks again. {@code IOException} for all that is not as it should be.
 */
final class SpanWindow {
    static final int HEADER_BYTES = 8;
    private static final int REQUEST_BYTES_MAX = 2 * 1024 * 1024;
    private static final int REQUESTS_AHEAD_MAX = 3;
    /** A larger event is Python's to read. */
    private static final int WINDOW_BYTES_MAX = (REQUESTS_AHEAD_MAX + 1) * REQUEST_BYTES_MAX;

    /** A request that is not answered. */
    private record Asked(long offset, int length) {
    }

    private final NativePlan.Span span;
    private final StoreConnection store;
    private final List<Asked> owed = new ArrayList<>();
    private final byte[] bytes;
    private final ByteBuffer numbers;
    /** The offset in the segment of the first of {@code bytes}. */
    private long base;
    /** How many of {@code bytes} were handed out. */
    private int consumed;
    private long askedUpTo;

    SpanWindow(NativePlan.Span span, StoreConnection store) {
        this.span = span;
        this.store = store;
        bytes = new byte[(int) Math.min(span.end() - span.start(), WINDOW_BYTES_MAX)];
        numbers = ByteBuffer.wrap(bytes);
        base = span.start();
        askedUpTo = base;
    }

    /** Puts the next events into {@code rows}, in place of those before; false at the end of the span. */
    boolean next(EventRows rows) throws IOException {
        dropConsumed();
        while (base < span.end()) {
            askAhead();
            if (owed.isEmpty()) {
                throw new IOException("at offset " + base + " begins an event that the window or the span has no room for");
            }
            receive();
            index(rows);
            if (rows.count() > 0) {
                return true;
            }
        }
        return false;
    }

    /** The offset behind the last event that was handed out. */
    long consumedUpTo() {
        return base + consumed;
    }

    /** Moves what is not handed out to the front, and with it the gaps between, which replies fill later. */
    private void dropConsumed() {
        System.arraycopy(bytes, consumed, bytes, 0, (int) (askedUpTo - base) - consumed);
        base += consumed;
        consumed = 0;
    }

    /** Small requests only where nothing else is owed: each costs the store as much as a large one. */
    private void askAhead() throws IOException {
        while (owed.size() < REQUESTS_AHEAD_MAX && askedUpTo < span.end()) {
            int length = (int) Math.min(Math.min(base + bytes.length, span.end()) - askedUpTo, REQUEST_BYTES_MAX);
            boolean isWhole = length == Math.min(REQUEST_BYTES_MAX, span.end() - askedUpTo);
            if (length == 0 || (!isWhole && !owed.isEmpty())) {
                return;
            }
            ask(askedUpTo, length);
            askedUpTo += length;
        }
    }

    private void ask(long offset, int length) throws IOException {
        owed.add(new Asked(offset, length));
        store.askFor(span.segment(), offset, length);
    }

    private void receive() throws IOException {
        StoreConnection.Reply reply = store.nextReply(span.segment());
        Asked asked = owed.stream().filter(one -> one.offset == reply.offset()).findFirst()
            .orElseThrow(() -> new IOException("a reply for offset " + reply.offset() + ", which nobody asked for"));
        if (reply.length() < 1 || reply.length() > asked.length) {
            throw new IOException("a reply of " + reply.length() + " bytes to a request for " + asked.length);
        }
        store.receiveData(bytes, (int) (reply.offset() - base), reply.length());
        owed.remove(asked);
        if (reply.length() < asked.length) {
            ask(reply.offset() + reply.length(), asked.length - reply.length());
        }
    }

    /** Rows for all whole events in front of the first gap. */
    private void index(EventRows rows) throws IOException {
        int end = (int) (owed.stream().mapToLong(Asked::offset).min().orElse(askedUpTo) - base);
        rows.restart(bytes, base);
        int at = 0;
        while (at + HEADER_BYTES <= end) {
            long header = numbers.getLong(at); // The type, which is 0, and the length.
            if (header < 0 || header > Integer.MAX_VALUE) {
                if (at == 0) {
                    throw new IOException("no event begins at offset " + base);
                }
                break; // Those in front of it are handed out first.
            }
            long next = at + HEADER_BYTES + header;
            if (next > end) {
                break;
            }
            rows.add(at, (int) header);
            at = (int) next;
        }
        consumed = at;
    }
}
