package pravegaspark;

import java.io.IOException;

import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the spans of a partition from their stores, as batches that are good until the next.
 *
 * <p>It knows events and the bytes that hold them. Whatever else happens (a store that is away or has not got the
 * segment, lost data, bytes that are no event) is Python's to decide: it reads the rest of the partition, from the
 * first event that was not handed out, with its own repetitions and errors.
 */
final class NativeReader implements PartitionReader<ColumnarBatch> {
    private static final Logger LOG = LoggerFactory.getLogger(NativeReader.class);

    private final NativePartition partition;
    private final PartitionReaderFactory python;
    private final StructType schema;
    private int span;
    private StoreConnection store;
    private SpanWindow window;
    private EventRows rows;
    private PythonColumns rest;

    NativeReader(NativePartition partition, PartitionReaderFactory python, StructType schema) {
        this.partition = partition;
        this.python = python;
        this.schema = schema;
    }

    @Override
    public boolean next() throws IOException {
        while (rest == null && span < partition.plan().spans().size()) {
            try {
                if (window == null) {
                    open(partition.plan().spans().get(span));
                }
                if (window.next(rows)) {
                    return true;
                }
            } catch (IOException error) {
                handOver(error);
                break;
            }
            window = null;
            span++;
        }
        return rest != null && rest.next();
    }

    private void open(NativePlan.Span next) throws IOException {
        rows = new EventRows(schema, next);
        if (store == null || !store.isOf(next.host(), next.port())) {
            closeStore();
            store = StoreConnection.open(next.host(), next.port());
        }
        window = new SpanWindow(next, store);
    }

    private void handOver(IOException error) throws IOException {
        NativePlan.Span reading = partition.plan().spans().get(span);
        long offset = window == null ? reading.start() : window.consumedUpTo();
        LOG.info("Python reads {} from offset {} on: {}", reading.segment(), offset, error.toString());
        closeStore();
        window = null;
        rows = null;
        rest = new PythonColumns(python.createReader(partition.rest(span, offset)), schema);
    }

    @Override
    public ColumnarBatch get() {
        return rest == null ? rows.batch() : rest.get();
    }

    @Override
    public void close() throws IOException {
        closeStore();
        if (rest != null) {
            rest.close();
        }
    }

    private void closeStore() throws IOException {
        if (store != null) {
            store.close();
            store = null;
        }
    }
}
