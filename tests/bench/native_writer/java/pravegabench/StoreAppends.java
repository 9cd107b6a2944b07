package pravegabench;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;

import io.netty.channel.epoll.Epoll;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.unix.Socket;

/**
 * A connection of one task to the segment store of this machine: Hello, SetupAppend, AppendBlockEnd and their answers
 * (docs/wire-protocol.md 2 and 3). Java cannot name an abstract socket, Netty can; Netty's do not block, so this looks
 * again after a pause.
 */
final class StoreAppends {
    private static final int HELLO = -127;
    private static final int SETUP_APPEND = 1;
    private static final int APPEND_SETUP = 2;
    private static final int DATA_APPENDED = 7;
    private static final int HIGH_VERSION = 17;
    private static final int LOW_VERSION = 5;
    private static final int SEND_BUFFER_BYTES = 4 * 1024 * 1024;
    private static final long PAUSE_NS = 50_000;

    private final Socket socket;
    private final ByteBuffer small = ByteBuffer.allocateDirect(64 * 1024);
    /** Received, from its position to its limit not looked at. */
    private final ByteBuffer answers = ByteBuffer.allocateDirect(64 * 1024).limit(0);
    private final Map<UUID, SegmentBlocks> writers = new HashMap<>();
    private long requests;
    private int setUps;

    StoreAppends(int port) throws IOException {
        Epoll.ensureAvailability();
        socket = Socket.newSocketDomain();
        socket.setSendBufferSize(SEND_BUFFER_BYTES);
        if (!socket.connect(new DomainSocketAddress("\0pravega-segment-store/" + port))) {
            throw new IOException("the Unix socket of port " + port + " does not accept at once");
        }
        send(small.clear().putInt(HELLO).putInt(8).putInt(HIGH_VERSION).putInt(LOW_VERSION).flip());
    }

    SegmentBlocks writerOf(String segment) throws IOException {
        SegmentBlocks made = new SegmentBlocks(this);
        writers.put(made.writer, made);
        byte[] name = segment.getBytes(StandardCharsets.UTF_8);
        small.clear().putInt(SETUP_APPEND).putInt(8 + 16 + 2 + name.length + 2).putLong(nextRequest());
        small.putLong(made.writer.getMostSignificantBits()).putLong(made.writer.getLeastSignificantBits());
        send(small.putShort((short) name.length).put(name).putShort((short) 0).flip());
        int wanted = setUps + 1;
        while (setUps < wanted) {
            receive(true);
        }
        return made;
    }

    long nextRequest() {
        return ++requests;
    }

    void send(ByteBuffer data) throws IOException {
        while (data.hasRemaining()) {
            int count = socket.write(data, data.position(), data.limit());
            if (count == 0) {
                LockSupport.parkNanos(PAUSE_NS);
            }
            data.position(data.position() + count);
        }
    }

    void awaitAll() throws IOException {
        while (!writers.values().stream().allMatch(SegmentBlocks::isDurable)) {
            receive(true);
        }
    }

    /** Takes the answers that are there; waits for one if need be. */
    void receive(boolean waits) throws IOException {
        while (true) {
            answers.compact();
            int count = socket.read(answers, answers.position(), answers.limit());
            if (count < 0) {
                throw new EOFException("the store closed the connection");
            }
            answers.position(answers.position() + count).flip();
            if (take() || !waits) {
                return;
            }
            LockSupport.parkNanos(PAUSE_NS);
        }
    }

    /** Whether there was a whole answer. */
    private boolean take() throws IOException {
        boolean found = false;
        while (answers.remaining() >= 8 && answers.remaining() >= 8 + answers.getInt(answers.position() + 4)) {
            int type = answers.getInt();
            int next = answers.getInt() + answers.position();
            switch (type) {
                case HELLO -> { }
                case APPEND_SETUP -> setUps++;
                case DATA_APPENDED -> {
                    UUID writer = new UUID(answers.getLong(), answers.getLong());
                    writers.get(writer).acknowledged(answers.getLong());
                }
                default -> throw new IOException("the store answers an append with command " + type);
            }
            answers.position(next);
            found = true;
        }
        return found;
    }

    void close() throws IOException {
        socket.close();
    }
}
