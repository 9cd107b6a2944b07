package pravegaspark;

import java.util.Map;
import java.util.Optional;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** The Python stream with a description of its own, numbers in the query's progress, and native partitions. */
final class PravegaMicroBatchStream<S extends MicroBatchStream & SupportsTriggerAvailableNow>
        implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private final S python;
    private final String place;
    private final StructType schema;
    /** Written by the query's thread, read when somebody asks for the progress. */
    private volatile Offset reported;

    PravegaMicroBatchStream(S python, String place, StructType schema) {
        this.python = python;
        this.place = place;
        this.schema = schema;
    }

    /** What {@code sources[].description} of the progress shows. */
    @Override
    public String toString() {
        return "Pravega[" + place + "]";
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumedOffset) {
        return SourceMetrics.of(reported == null ? null : reported.json(), latestConsumedOffset.map(Offset::json));
    }

    @Override
    public Offset reportLatestOffset() {
        reported = python.reportLatestOffset();
        return reported;
    }

    @Override
    public Offset initialOffset() {
        return python.initialOffset();
    }

    @Override
    public Offset latestOffset() {
        return python.latestOffset();
    }

    @Override
    public Offset latestOffset(Offset startOffset, ReadLimit limit) {
        return python.latestOffset(startOffset, limit);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return python.getDefaultReadLimit();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        python.prepareForTriggerAvailableNow();
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return NativePartition.planned(python.planInputPartitions(start, end));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new NativeReaderFactory(python.createReaderFactory(), schema);
    }

    @Override
    public Offset deserializeOffset(String json) {
        return python.deserializeOffset(json);
    }

    @Override
    public void commit(Offset end) {
        python.commit(end);
    }

    @Override
    public void stop() {
        python.stop();
    }
}
