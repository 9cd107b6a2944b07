package pravegabench;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A batch source of the column {@code event}, planned by whoever uses it.
 *
 * <p>Option {@code partitions} has a line for each: spans with {@code ;} between them, each
 * {@code segment start end host:port}. Option {@code socket} is {@code unix} or {@code tcp}.
 */
public final class NativeReader implements TableProvider {
    static final StructType SCHEMA = new StructType().add("event", DataTypes.BinaryType);

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return SCHEMA;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new EventTable();
    }

    /** A span of one segment between two events, and the store that served it at the time of the plan. */
    record Span(String segment, long start, long end, String host, int port) implements Serializable {
        static Span parse(String text) {
            String[] parts = text.trim().split(" ");
            int colon = parts[3].lastIndexOf(':');
            return new Span(parts[0], Long.parseLong(parts[1]), Long.parseLong(parts[2]),
                    parts[3].substring(0, colon), Integer.parseInt(parts[3].substring(colon + 1)));
        }
    }

    record Spans(Span[] spans, boolean local) implements InputPartition {
    }

    private static final class EventTable implements Table, SupportsRead {
        @Override
        public String name() {
            return "native reader (prototype)";
        }

        @Override
        public StructType schema() {
            return SCHEMA;
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return () -> new EventScan(options.get("partitions"), !"tcp".equals(options.get("socket")));
        }
    }

    private record EventScan(String partitions, boolean local) implements Scan, Batch {
        @Override
        public StructType readSchema() {
            return SCHEMA;
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        @Override
        public ColumnarSupportMode columnarSupportMode() {
            return ColumnarSupportMode.SUPPORTED;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return partitions.lines()
                    .map(line -> new Spans(
                            Arrays.stream(line.split(";")).map(Span::parse).toArray(Span[]::new), local))
                    .toArray(InputPartition[]::new);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Readers();
        }
    }

    private static final class Readers implements PartitionReaderFactory {
        private static final long serialVersionUID = 1;

        @Override
        public boolean supportColumnarReads(InputPartition partition) {
            return true;
        }

        @Override
        public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
            return new EventBatches((Spans) partition);
        }

        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            throw new UnsupportedOperationException("columns only");
        }
    }
}
