package pravegaspark;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** The batch of the Python source, whose partitions this JVM reads itself where Python planned them so. */
record NativeBatch(Batch python, StructType schema) implements Batch {
    @Override
    public InputPartition[] planInputPartitions() {
        return NativePartition.planned(python.planInputPartitions());
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new NativeReaderFactory(python.createReaderFactory(), schema);
    }
}
