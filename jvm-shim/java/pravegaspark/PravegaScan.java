package pravegaspark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.StructType;

import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/** The Python scan, with partitions that this JVM reads itself where they were planned so. */
final class PravegaScan implements Scan, SupportsMetadata {
    private final Scan python;
    private final String place;
    private final boolean isNative;

    /** {@code isNative}: this JVM reads the partitions that Python planned so. */
    PravegaScan(Scan python, String place, boolean isNative) {
        this.python = python;
        this.place = place;
        this.isNative = isNative;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        MicroBatchStream stream = python.toMicroBatchStream(checkpointLocation);
        // Of another kind it would be a package of another time, which works just without the extras.
        return stream instanceof SupportsTriggerAvailableNow
            ? new PravegaMicroBatchStream<>(cast(stream), place, readSchema())
            : stream;
    }

    @SuppressWarnings("unchecked")
    private static <S extends MicroBatchStream & SupportsTriggerAvailableNow> S cast(MicroBatchStream stream) {
        return (S) stream;
    }

    @Override
    public String description() {
        return "Pravega[" + place + "]";
    }

    @Override
    public StructType readSchema() {
        return python.readSchema();
    }

    @Override
    public Batch toBatch() {
        return isNative ? new NativeBatch(python.toBatch(), readSchema()) : python.toBatch();
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
        return python.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
        return python.reportDriverMetrics();
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        // Partitions are planned for the answer, which others are spared.
        return isNative ? ColumnarSupportMode.PARTITION_DEFINED : python.columnarSupportMode();
    }

    /** Nothing on Spark 4.0, where the Python scan has none. */
    @Override
    public Map<String, String> getMetaData() {
        return python instanceof SupportsMetadata described ? described.getMetaData() : Map$.MODULE$.empty();
    }
}
