package pravegaspark;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Supplier;

import org.apache.spark.SparkBuildInfo;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A stream as a table: reads and writes go to the Python source, with the table's own options beside the query's. */
final class PravegaTable implements SupportsRead, SupportsWrite {
    private final StructType schema;
    private final TableOptions options;
    private final Function<CaseInsensitiveStringMap, StructType> columns;
    private final Supplier<Map<String, String>> describe;
    private final List<PythonSource> sources = new ArrayList<>();
    private Map<String, String> properties;

    /**
     * A table of the catalog.
     *
     * @param columns the columns that a read with these options has
     * @param describe asks for the properties to show
     */
    PravegaTable(
            StructType schema, TableOptions options, Function<CaseInsensitiveStringMap, StructType> columns,
            Supplier<Map<String, String>> describe) {
        this.schema = schema;
        this.options = options;
        this.columns = columns;
        this.describe = describe;
    }

    /**
     * A table of Spark's own catalog, or what a read or write loads.
     *
     * @param inferred the source that gave the schema, to be used again, or null
     */
    PravegaTable(StructType schema, TableOptions options, PythonSource inferred) {
        this.schema = schema;
        this.options = options;
        this.columns = null;
        this.describe = Map::of;
        if (inferred != null) {
            sources.add(inferred);
        }
    }

    @Override
    public String name() {
        return toString();
    }

    /** What the progress of a query shows as the sink. */
    @Override
    public String toString() {
        return "Pravega[" + TableOptions.describe(options.with(Map.of())) + "]";
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return schema;
    }

    /** Asked for when somebody looks: it takes a call for every segment. */
    @Override
    public synchronized Map<String, String> properties() {
        if (properties == null) {
            properties = describe.get();
        }
        return properties;
    }

    /**
     * Any schema: what is written (event, routing_key) has other columns than what is read, so Spark must not fit one
     * to the other; the Python side checks the columns. Truncation is refused there too, with what to use instead.
     */
    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(
            TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.MICRO_BATCH_READ,
            TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    /**
     * {@code UnsupportedOperationException} for options that give a table of the catalog other columns than Spark took
     * it to have: before 4.3 Spark asks for a table without the options of its query.
     */
    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap query) {
        CaseInsensitiveStringMap merged = options.with(query.asCaseSensitiveMap());
        if (columns != null && !columns.apply(merged).equals(schema)) {
            throw new UnsupportedOperationException("options " + StreamCatalog.columnOptions() + " of a query give a table"
                + " of the catalog other columns, which needs Spark 4.3, this is " + SparkBuildInfo.spark_version()
                + "; give them in CREATE TABLE … OPTIONS, or read with format(\"pravega\") or a temporary view");
        }
        ScanBuilder python = reading(merged).newScanBuilder(schema);
        String place = TableOptions.describe(merged);
        boolean isNative = TableOptions.isNative(merged);
        if (!(TableOptions.takesFilters(merged) && python instanceof SupportsPushDownFilters)) {
            // Of filters that it refuses Python would plan the read anew all the same, up to another end.
            return () -> new PravegaScan(python.build(), place, isNative);
        }
        CaseInsensitiveStringMap without = TableOptions.takingFilters(merged, "false");
        CaseInsensitiveStringMap once = TableOptions.takingFilters(merged, "once");
        return new PravegaScanBuilder(
            filtering(reading(without)), () -> filtering(PythonSource.create(once)), place, isNative);
    }

    private SupportsPushDownFilters filtering(PythonSource source) {
        return (SupportsPushDownFilters) source.newScanBuilder(schema);
    }

    /** As without the jar, one table with one set of options is planned by one Python source, whose cuts are kept. */
    private synchronized PythonSource reading(CaseInsensitiveStringMap merged) {
        for (PythonSource source : sources) {
            if (source.has(merged)) {
                return source;
            }
        }
        PythonSource made = PythonSource.create(merged);
        sources.add(made);
        return made;
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        CaseInsensitiveStringMap merged = options.with(info.options().asCaseSensitiveMap());
        PythonSource source = PythonSource.create(merged);
        return new PravegaWriteBuilder(source.newWriteBuilder(new MergedWriteInfo(info, merged)));
    }
}
