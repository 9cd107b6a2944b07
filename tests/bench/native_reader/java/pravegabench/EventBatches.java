package pravegabench;

import java.io.IOException;
import java.nio.ByteBuffer;

import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The events of the spans of one partition, as batches that are good until the next. */
final class EventBatches implements PartitionReader<ColumnarBatch> {
    /** Pages that are touched for the first time cost as much as what is received into them: a thread keeps them. */
    private static final ThreadLocal<ByteBuffer> MEMORY = ThreadLocal.withInitial(SpanWindow::memory);

    private final NativeReader.Spans partition;
    private final EventVector events = new EventVector();
    private final ColumnarBatch batch = new ColumnarBatch(new ColumnVector[] {events});
    private int nextSpan;
    private SpanWindow window;

    EventBatches(NativeReader.Spans partition) {
        this.partition = partition;
    }

    @Override
    public boolean next() throws IOException {
        while (true) {
            if (window != null && window.next(events)) {
                batch.setNumRows(events.count());
                return true;
            }
            close();
            if (nextSpan == partition.spans().length) {
                return false;
            }
            NativeReader.Span span = partition.spans()[nextSpan++];
            window = new SpanWindow(span, StoreSocket.open(span, partition.local()), MEMORY.get());
        }
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        if (window != null) {
            MEMORY.set(window.close());
            window = null;
        }
    }
}
