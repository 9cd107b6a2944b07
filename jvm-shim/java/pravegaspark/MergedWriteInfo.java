package pravegaspark;

import java.util.Optional;

import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What is to be written, with the table's options in it, and with names for the columns of VALUES. */
record MergedWriteInfo(LogicalWriteInfo info, CaseInsensitiveStringMap options) implements LogicalWriteInfo {
    private static final String[] NAMES = {"event", "routing_key"};
    private static final String[] RECORD_NAMES = {"key", "value", "headers", "timestamp"};

    @Override
    public String queryId() {
        return info.queryId();
    }

    /**
     * {@code INSERT INTO t VALUES ('event')} and {@code VALUES ('event', 'key')} have columns {@code col1}, {@code
     * col2}: Spark's names for columns without one. Rows are known by position, so they can be given the sink's names;
     * of a table of records in the order of its columns.
     */
    @Override
    public StructType schema() {
        StructType given = info.schema();
        String[] names = given.fieldNames();
        String[] ours = TableOptions.holdsRecords(options) ? RECORD_NAMES : NAMES;
        if (names.length == 0 || names.length > ours.length) {
            return given;
        }
        StructType named = new StructType();
        for (int index = 0; index < names.length; index++) {
            if (!names[index].equals("col" + (index + 1))) {
                return given;
            }
            named = named.add(ours[index], given.apply(index).dataType(), given.apply(index).nullable());
        }
        return named;
    }

    @Override
    public Optional<StructType> rowIdSchema() {
        return info.rowIdSchema();
    }

    @Override
    public Optional<StructType> metadataSchema() {
        return info.metadataSchema();
    }
}
