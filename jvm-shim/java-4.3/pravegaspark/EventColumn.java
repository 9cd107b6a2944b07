package pravegaspark;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.BinaryView;

/** A column of events, which Spark copies from where they were received, from 4.3 on. */
final class EventColumn extends BytesColumn {
    EventColumn(EventRows rows) {
        super(rows);
    }

    @Override
    public BinaryView getBinaryView(int row) {
        return BinaryView.fromAddress(rows.bytes(), Platform.BYTE_ARRAY_OFFSET + rows.start(row), rows.length(row));
    }
}
