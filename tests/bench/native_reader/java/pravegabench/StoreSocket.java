package pravegabench;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;

import io.netty.channel.epoll.Epoll;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.unix.Socket;

/** A connection to a segment store: Hello, ReadSegment and SegmentRead of docs/wire-protocol.md 2. */
final class StoreSocket {
    private static final int HELLO = -127;
    private static final int READ_SEGMENT = 9;
    private static final int SEGMENT_READ = 10;
    private static final int HIGH_VERSION = 17;
    private static final int LOW_VERSION = 5;
    private static final int PAYLOAD_BYTES_MAX = 16_777_207;

    /** What a SegmentRead says in front of its data. */
    record Reply(long offset, int length) {
    }

    /** The bytes of either kind of socket. */
    private interface Channel {
        /** At least one byte, or -1 at the end. */
        int read(ByteBuffer target) throws IOException;

        void write(ByteBuffer source) throws IOException;

        void close() throws IOException;
    }

    private static final ThreadLocal<StoreSocket> IDLE = new ThreadLocal<>();

    private final String key;
    private final Channel channel;
    private final ByteBuffer small = ByteBuffer.allocateDirect(64 * 1024);
    private int behindData;
    private long requests;

    private StoreSocket(String key, Channel channel) throws IOException {
        this.key = key;
        this.channel = channel;
        small.clear().putInt(HELLO).putInt(8).putInt(HIGH_VERSION).putInt(LOW_VERSION);
        channel.write(small.flip());
    }

    /** The idle one of this thread, if it is of this store. */
    static StoreSocket open(NativeReader.Span span, boolean local) throws IOException {
        String key = span.host() + ":" + span.port() + " " + local;
        StoreSocket idle = IDLE.get();
        IDLE.remove();
        if (idle != null && idle.key.equals(key)) {
            return idle;
        }
        if (idle != null) {
            idle.channel.close();
        }
        return new StoreSocket(key, local ? local(span.port()) : tcp(span.host(), span.port()));
    }

    void close(boolean isReusable) throws IOException {
        if (isReusable) {
            IDLE.set(this);
        } else {
            channel.close();
        }
    }

    void askFor(String segment, long offset, int length) throws IOException {
        byte[] name = segment.getBytes(StandardCharsets.UTF_8);
        small.clear().putInt(READ_SEGMENT).putInt(2 + name.length + 8 + 4 + 2 + 8);
        small.putShort((short) name.length).put(name).putLong(offset).putInt(length).putShort((short) 0);
        channel.write(small.putLong(++requests).flip());
    }

    /** The next reply to a read; its data is to be received next. */
    Reply nextReply() throws IOException {
        while (true) {
            int type = receive(8).getInt();
            int payload = small.getInt();
            if (payload < 0 || payload > PAYLOAD_BYTES_MAX) {
                throw new IOException("a frame of " + payload + " bytes");
            }
            if (type == HELLO) {
                greeted(payload);
            } else if (type == SEGMENT_READ) {
                return read(payload);
            } else {
                throw new IOException("the store answered a read with command " + type);
            }
        }
    }

    private void greeted(int payload) throws IOException {
        int high = receive(payload).getInt();
        int low = small.getInt();
        if (low > HIGH_VERSION || high < LOW_VERSION) {
            throw new IOException("wire versions " + low + ".." + high + " are not ours");
        }
    }

    private Reply read(int payload) throws IOException {
        int name = Short.toUnsignedInt(receive(2).getShort());
        receive(name + 8 + 2 + 4).position(name);
        long offset = small.getLong();
        small.position(name + 10);
        int length = small.getInt();
        behindData = payload - (2 + name + 8 + 2 + 4 + length);
        if (length < 0 || behindData < 0) {
            throw new IOException("a reply of " + length + " bytes in a payload of " + payload);
        }
        return new Reply(offset, length);
    }

    void receiveData(ByteBuffer target) throws IOException {
        fill(target);
        receive(behindData);
    }

    private ByteBuffer receive(int count) throws IOException {
        fill(small.clear().limit(count));
        return small.flip();
    }

    private void fill(ByteBuffer target) throws IOException {
        while (target.hasRemaining()) {
            if (channel.read(target) < 0) {
                throw new EOFException("the store closed the connection");
            }
        }
    }

    private static Channel tcp(String host, int port) throws IOException {
        SocketChannel socket = SocketChannel.open(new InetSocketAddress(host, port));
        socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
        return new Channel() {
            @Override
            public int read(ByteBuffer target) throws IOException {
                return socket.read(target);
            }

            @Override
            public void write(ByteBuffer source) throws IOException {
                while (source.hasRemaining()) {
                    socket.write(source);
                }
            }

            @Override
            public void close() throws IOException {
                socket.close();
            }
        };
    }

    /** Java cannot name an abstract socket, Netty can. Netty's do not block: this one looks again after a pause. */
    private static Channel local(int port) throws IOException {
        Epoll.ensureAvailability();
        Socket socket = Socket.newSocketDomain();
        if (!socket.connect(new DomainSocketAddress("\0pravega-segment-store/" + port))) {
            throw new IOException("the Unix socket of port " + port + " does not accept at once");
        }
        return new Polled(socket);
    }

    private record Polled(Socket socket) implements Channel {
        private static final long PAUSE_NS = 20_000;

        @Override
        public int read(ByteBuffer target) throws IOException {
            while (true) {
                int count = socket.read(target, target.position(), target.limit());
                if (count != 0) {
                    target.position(target.position() + Math.max(count, 0));
                    return count;
                }
                LockSupport.parkNanos(PAUSE_NS);
            }
        }

        @Override
        public void write(ByteBuffer source) throws IOException {
            while (source.hasRemaining()) {
                int count = socket.write(source, source.position(), source.limit());
                source.position(source.position() + count);
            }
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }
}
