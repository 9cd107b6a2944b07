package pravegaspark;

import java.io.IOException;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows that Python reads, copied into columns: Spark takes rows or columns from a partition, not both. */
final class PythonColumns implements PartitionReader<ColumnarBatch> {
    private static final int ROWS_MAX = 4096;
    private static final int BYTES_MAX = 4 * 1024 * 1024;

    private final PartitionReader<InternalRow> python;
    private final StructType schema;
    private final OnHeapColumnVector[] columns;
    private final ColumnarBatch batch;

    PythonColumns(PartitionReader<InternalRow> python, StructType schema) {
        this.python = python;
        this.schema = schema;
        columns = OnHeapColumnVector.allocateColumns(ROWS_MAX, schema);
        batch = new ColumnarBatch(columns);
    }

    @Override
    public boolean next() throws IOException {
        int rows = 0;
        long bytes = 0;
        for (OnHeapColumnVector column : columns) {
            column.reset();
        }
        while (rows < ROWS_MAX && bytes < BYTES_MAX && python.next()) {
            bytes += put(python.get(), rows++);
        }
        batch.setNumRows(rows);
        return rows > 0;
    }

    /** The bytes of the row's texts and events. */
    private int put(InternalRow row, int at) {
        int bytes = 0;
        for (int index = 0; index < columns.length; index++) {
            if (schema.fields()[index].dataType().equals(DataTypes.LongType)) {
                columns[index].putLong(at, row.getLong(index));
                continue;
            }
            boolean isText = schema.fields()[index].dataType().equals(DataTypes.StringType);
            byte[] value = isText ? row.getUTF8String(index).getBytes() : row.getBinary(index);
            columns[index].putByteArray(at, value);
            bytes += value.length;
        }
        return bytes;
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        batch.close();
        python.close();
    }
}
