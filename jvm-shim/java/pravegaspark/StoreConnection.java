package pravegaspark;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;

/**
 * A connection to a segment store that speaks Hello, ReadSegment and SegmentRead ({@code docs/wire-protocol.md} 2).
 * {@code IOException} for any other answer, and for none in time. A task that is killed ends within a second, and while
 * it connects once that is done or given up, after up to 10 s.
 */
final class StoreConnection implements AutoCloseable {
    private static final int HELLO = -127;
    private static final int READ_SEGMENT = 9;
    private static final int SEGMENT_READ = 10;
    private static final int HIGH_VERSION = 17;
    private static final int LOW_VERSION = 5;
    private static final int PAYLOAD_BYTES_MAX = 16_777_207;
    private static final int CONNECT_TIME_MAX_MS = 10_000;
    private static final int SILENCE_MAX_MS = 30_000;
    private static final int LOOK_INTERVAL_MS = 1_000;
    private static final int HEADER_BYTES = 8;
    private static final int HELLO_BYTES = 8;
    /** Of a SegmentRead without name and data: lengths of both, offset, two flags, id of the request. */
    private static final int REPLY_BYTES_MIN = Short.BYTES + Long.BYTES + 2 + Integer.BYTES + Long.BYTES;

    /** What a SegmentRead says in front of its data. */
    record Reply(long offset, int length) {
    }

    private final String host;
    private final int port;
    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;
    private long requests;

    private StoreConnection(String host, int port, Socket socket) throws IOException {
        this.host = host;
        this.port = port;
        this.socket = socket;
        in = socket.getInputStream();
        out = socket.getOutputStream();
    }

    static StoreConnection open(String host, int port) throws IOException {
        Socket socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(LOOK_INTERVAL_MS);
            socket.connect(new InetSocketAddress(host, port), CONNECT_TIME_MAX_MS);
            StoreConnection made = new StoreConnection(host, port, socket);
            made.greet();
            return made;
        } catch (IOException | RuntimeException error) {
            socket.close();
            throw error;
        }
    }

    boolean isOf(String otherHost, int otherPort) {
        return host.equals(otherHost) && port == otherPort;
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }

    private void greet() throws IOException {
        out.write(ByteBuffer.allocate(HEADER_BYTES + HELLO_BYTES).putInt(HELLO).putInt(HELLO_BYTES).putInt(HIGH_VERSION)
            .putInt(LOW_VERSION).array());
        ByteBuffer hello = received(HEADER_BYTES + HELLO_BYTES);
        if (hello.getInt() != HELLO || hello.getInt() != HELLO_BYTES) {
            throw new IOException("the store does not greet");
        }
        int high = hello.getInt();
        int low = hello.getInt();
        if (low > HIGH_VERSION || high < LOW_VERSION) {
            throw new IOException("the store speaks versions " + low + " to " + high + " of the protocol");
        }
    }

    void askFor(String segment, long offset, int length) throws IOException {
        byte[] name = segment.getBytes(StandardCharsets.UTF_8);
        int payload = Short.BYTES + name.length + Long.BYTES + Integer.BYTES + Short.BYTES + Long.BYTES;
        ByteBuffer request = ByteBuffer.allocate(HEADER_BYTES + payload).putInt(READ_SEGMENT).putInt(payload);
        request.putShort((short) name.length).put(name).putLong(offset).putInt(length);
        out.write(request.putShort((short) 0).putLong(++requests).array()); // No token: the store asks for none.
    }

    /** The next reply; its data is to be received next. */
    Reply nextReply(String segment) throws IOException {
        ByteBuffer header = received(HEADER_BYTES);
        int type = header.getInt();
        int payload = header.getInt();
        if (type != SEGMENT_READ) {
            throw new IOException("the store answers a read with command " + type);
        }
        byte[] name = segment.getBytes(StandardCharsets.UTF_8);
        int front = REPLY_BYTES_MIN - Long.BYTES + name.length;
        if (payload < front + Long.BYTES || payload > PAYLOAD_BYTES_MAX) {
            throw new IOException("the store answers a read with " + payload + " bytes");
        }
        ByteBuffer reply = received(front);
        byte[] told = new byte[Math.min(Short.toUnsignedInt(reply.getShort()), name.length)];
        reply.get(told);
        if (!Arrays.equals(told, name)) {
            throw new IOException("the store answers for another segment");
        }
        long offset = reply.getLong();
        reply.position(reply.position() + 2); // Whether the segment ends there, now or for good: Python planned the end.
        int length = reply.getInt();
        if (length != payload - front - Long.BYTES) {
            throw new IOException("a reply of " + length + " bytes in a payload of " + payload);
        }
        return new Reply(offset, length);
    }

    void receiveData(byte[] target, int start, int length) throws IOException {
        fill(target, start, length);
        received(Long.BYTES); // The id of the request; the offset tells which it was.
    }

    private ByteBuffer received(int count) throws IOException {
        byte[] bytes = new byte[count];
        fill(bytes, 0, count);
        return ByteBuffer.wrap(bytes);
    }

    private void fill(byte[] target, int start, int length) throws IOException {
        int filled = 0;
        long silentSince = System.nanoTime();
        while (filled < length) {
            try {
                int count = in.read(target, start + filled, length - filled);
                if (count < 0) {
                    throw new EOFException("the store closed the connection");
                }
                filled += count;
                silentSince = System.nanoTime();
            } catch (SocketTimeoutException silent) {
                checkWanted();
                if (System.nanoTime() - silentSince > SILENCE_MAX_MS * 1_000_000L) {
                    throw new IOException("the store was silent for " + SILENCE_MAX_MS + " ms", silent);
                }
            }
        }
    }

    private static void checkWanted() {
        TaskContext task = TaskContext.get();
        if (task != null && task.isInterrupted()) {
            throw new TaskKilledException("killed while a store was silent");
        }
    }
}
