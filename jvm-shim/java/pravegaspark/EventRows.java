package pravegaspark;

import java.util.Arrays;

import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** The rows of events of one span, which lie where they were received. */
final class EventRows {
    /** The bytes that the next rows lie in, and the offset in the segment of the first of them. */
    private byte[] bytes;
    private long base;
    private int[] headers = new int[1024];
    private int count;
    private int end;
    private final ColumnarBatch batch;

    EventRows(StructType schema, NativePlan.Span span) {
        ColumnVector[] columns = new ColumnVector[schema.size()];
        for (int index = 0; index < columns.length; index++) {
            columns[index] = column(schema.fields()[index], span);
        }
        batch = new ColumnarBatch(columns);
    }

    private ColumnVector column(StructField field, NativePlan.Span span) {
        return switch (field.name()) {
            case "event" -> new EventColumn(this);
            case "offset" -> new OffsetColumn(this);
            case "scope" -> text(span.scope());
            case "stream" -> text(span.stream());
            case "segment_id" -> {
                ConstantColumnVector column = new ConstantColumnVector(Integer.MAX_VALUE, DataTypes.LongType);
                column.setLong(span.segmentId());
                yield column;
            }
            // Python plans no other column for this reader.
            default -> throw new IllegalStateException("column " + field.name() + " is none of the native reader's");
        };
    }

    private static ColumnVector text(String value) {
        ConstantColumnVector column = new ConstantColumnVector(Integer.MAX_VALUE, DataTypes.StringType);
        column.setUtf8String(UTF8String.fromString(value));
        return column;
    }

    /** Forgets all rows; the next ones are in these bytes, of which the first is at {@code base} of the segment. */
    void restart(byte[] received, long offset) {
        bytes = received;
        base = offset;
        count = 0;
        end = 0;
    }

    /** A row for the event whose header is at {@code header}; the next one follows right behind it. */
    void add(int header, int length) {
        if (count == headers.length) {
            headers = Arrays.copyOf(headers, count * 2);
        }
        headers[count++] = header;
        end = header + SpanWindow.HEADER_BYTES + length;
    }

    int count() {
        return count;
    }

    ColumnarBatch batch() {
        batch.setNumRows(count);
        return batch;
    }

    byte[] bytes() {
        return bytes;
    }

    long offset(int row) {
        return base + headers[row];
    }

    int start(int row) {
        return headers[row] + SpanWindow.HEADER_BYTES;
    }

    int length(int row) {
        return (row + 1 < count ? headers[row + 1] : end) - start(row);
    }
}
