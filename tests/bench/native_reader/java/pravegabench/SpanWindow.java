package pravegabench;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

import io.netty.util.internal.PlatformDependent;

/**
 * Receives the bytes of one span and finds the events in them.
 *
 * <p>A reply is received where its bytes belong. One that is shorter than asked for leaves a gap, for which it asks again.
 */
final class SpanWindow {
    private static final int REQUEST_BYTES = 2 * 1024 * 1024;
    private static final int REQUESTS_AHEAD_MAX = 3;
    private static final int WINDOW_BYTES = (REQUESTS_AHEAD_MAX + 1) * REQUEST_BYTES;
    private static final int HEADER_BYTES = 8;
    private static final int EVENT_BYTES_MAX = 256 * 1024 * 1024;

    /** A request that is not answered. */
    private record Asked(long offset, int length) {
    }

    private final NativeReader.Span span;
    private final StoreSocket socket;
    private final List<Asked> owed = new ArrayList<>();
    private ByteBuffer bytes;
    /** The offset in the segment of the first of {@code bytes}. */
    private long base;
    /** How many of {@code bytes} were handed out, or are none of ours any more. */
    private int consumed;
    private long askedUpTo;
    private long receivedUpTo;

    SpanWindow(NativeReader.Span span, StoreSocket socket, ByteBuffer bytes) {
        this.span = span;
        this.socket = socket;
        this.bytes = bytes;
        base = askedUpTo = receivedUpTo = span.start();
    }

    static ByteBuffer memory() {
        return ByteBuffer.allocateDirect(WINDOW_BYTES);
    }

    /** Puts the next events into {@code events}, in place of those before; false at the end of the span. */
    boolean next(EventVector events) throws IOException {
        dropConsumed();
        while (base < span.end()) {
            askAhead();
            receive();
            int wanted = index(events);
            if (events.count() > 0) {
                return true;
            }
            if (base + wanted > span.end()) {
                throw new IOException(span.segment() + ": at offset " + base + " an event of " + wanted
                        + " bytes begins, but the span ends at " + span.end());
            }
            growTo(wanted);
        }
        return false;
    }

    /** Gives its memory back, for the next span. */
    ByteBuffer close() throws IOException {
        socket.close(owed.isEmpty());
        return bytes;
    }

    private void dropConsumed() {
        bytes.limit((int) (receivedUpTo - base)).position(consumed).compact();
        base += consumed;
        consumed = 0;
    }

    private void askAhead() throws IOException {
        while (owed.size() < REQUESTS_AHEAD_MAX && askedUpTo < span.end()) {
            long room = Math.min(base + bytes.capacity(), span.end()) - askedUpTo;
            int length = (int) Math.min(room, REQUEST_BYTES);
            if (length < Math.min(REQUEST_BYTES, span.end() - askedUpTo)) {
                return;
            }
            ask(askedUpTo, length);
            askedUpTo += length;
        }
    }

    private void ask(long offset, int length) throws IOException {
        owed.add(new Asked(offset, length));
        socket.askFor(span.segment(), offset, length);
    }

    private void receive() throws IOException {
        StoreSocket.Reply reply = socket.nextReply();
        Asked asked = owed.stream().filter(one -> one.offset == reply.offset()).findFirst()
                .orElseThrow(() -> new IOException("a reply for offset " + reply.offset() + " that nobody asked for"));
        if (reply.length() < 1 || reply.length() > asked.length) {
            throw new IOException(span.segment() + ": " + reply.length() + " bytes at " + reply.offset());
        }
        int start = (int) (reply.offset() - base);
        socket.receiveData(bytes.clear().position(start).limit(start + reply.length()));
        owed.remove(asked);
        long end = reply.offset() + reply.length();
        receivedUpTo = Math.max(receivedUpTo, end);
        if (reply.length() < asked.length) {
            ask(end, asked.length - reply.length());
        }
    }

    /** Returns the bytes of the event at which it stopped, with its header. */
    private int index(EventVector events) throws IOException {
        int end = (int) (owed.stream().mapToLong(Asked::offset).min().orElse(askedUpTo) - base);
        bytes.clear();
        events.restart(PlatformDependent.directBufferAddress(bytes));
        int at = 0;
        int wanted = HEADER_BYTES;
        while (at + HEADER_BYTES <= end) {
            long header = bytes.getLong(at);
            if (header < 0 || header > EVENT_BYTES_MAX) { // Another type than 0, or a length that none has.
                throw new IOException(span.segment() + ": no event at offset " + (base + at));
            }
            wanted = HEADER_BYTES + (int) header;
            if (at + wanted > end) {
                break;
            }
            events.add(at + HEADER_BYTES, (int) header);
            at += wanted;
            wanted = HEADER_BYTES;
        }
        consumed = at;
        return wanted;
    }

    private void growTo(int wanted) {
        long needed = (long) wanted + WINDOW_BYTES;
        if (needed > bytes.capacity()) {
            ByteBuffer larger = ByteBuffer.allocateDirect((int) needed);
            larger.put(bytes.limit((int) (receivedUpTo - base)).position(0));
            bytes = larger;
        }
    }
}
