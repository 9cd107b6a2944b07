package pravegabench;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A batch sink of the columns {@code routing_key} (text) and {@code event} (binary) into transactions that its user
 * begins before and commits behind it.
 *
 * <p>Option {@code tasks} has a line for each partition of the rows: its transaction's segments with {@code ;} between
 * them, each {@code name upper-end-of-its-keys}, in the order of their keys. Option {@code port} is that of the store.
 */
public final class NativeWriter implements TableProvider {
    /** A transaction's segment, and the end of its keys. */
    record Target(String segment, double keyHigh) implements Serializable {
        static Target parse(String text) {
            String[] parts = text.split(" ");
            return new Target(parts[0], Double.parseDouble(parts[1]));
        }
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new StructType();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new EventTable(schema);
    }

    private record EventTable(StructType schema) implements Table, SupportsWrite {
        @Override
        public String name() {
            return "native writer (prototype)";
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            Target[][] tasks = info.options().get("tasks").lines()
                .map(line -> Arrays.stream(line.split(";")).map(Target::parse).toArray(Target[]::new))
                .toArray(Target[][]::new);
            StructType rows = info.schema();
            Factory factory = new Factory(
                tasks, info.options().getInt("port", 0), rows.fieldIndex("routing_key"), rows.fieldIndex("event"));
            return new WriteBuilder() {
                @Override
                public Write build() {
                    return new Write() {
                        @Override
                        public BatchWrite toBatch() {
                            return new EventWrite(factory);
                        }
                    };
                }
            };
        }
    }

    private record EventWrite(Factory factory) implements BatchWrite {
        @Override
        public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
            return factory;
        }

        @Override
        public void commit(WriterCommitMessage[] messages) {
        }

        @Override
        public void abort(WriterCommitMessage[] messages) {
        }
    }

    private record Factory(Target[][] tasks, int port, int key, int event) implements DataWriterFactory {
        @Override
        public DataWriter<InternalRow> createWriter(int partition, long taskId) {
            return new TaskWriter(tasks[partition], port, key, event);
        }
    }
}
