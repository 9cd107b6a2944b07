package pravegaspark;

import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/**
 * The Python sink with output mode {@code update}: Spark refuses that mode to every sink without the marker interface,
 * which no Python class can carry. Changed rows are appended as new events, as a changelog.
 */
final class PravegaWriteBuilder implements WriteBuilder, SupportsTruncate, SupportsStreamingUpdateAsAppend {
    private final WriteBuilder python;

    PravegaWriteBuilder(WriteBuilder python) {
        this.python = python;
    }

    @Override
    public WriteBuilder truncate() {
        ((SupportsTruncate) python).truncate();
        return this;
    }

    @Override
    public Write build() {
        return python.build();
    }
}
