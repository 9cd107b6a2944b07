package pravegaspark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of native partitions, and leaves those of others to the Python source. */
record NativeReaderFactory(PartitionReaderFactory python, StructType schema) implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return partition instanceof NativePartition;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        return new NativeReader((NativePartition) partition, python, schema);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        // Where Spark was not told that columns may come, Python reads what it planned for this JVM.
        return python.createReader(partition instanceof NativePartition planned ? planned.python() : partition);
    }
}
