package pravegaspark;

import java.util.Map;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * {@code format("pravega")} while the jar is there: Spark takes a JVM source before a Python source of the same name.
 * All data goes on to the Python source; this class only puts the tables of {@link PravegaTable} around it.
 *
 * <p>Spark makes one of these whenever it looks for any format, also in a Spark this jar was not built for. So
 * neither the constructor nor {@link #shortName()} may fail, and no internal class of Spark is named here.
 */
public final class PravegaSource implements TableProvider, DataSourceRegister {
    static final String FORMAT = "pravega";

    private PythonSource inferred;

    @Override
    public String shortName() {
        return FORMAT;
    }

    /** {@code options} are those of a read, or what CREATE TABLE is about to put into the session catalog. */
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        SparkVersion.check();
        inferred = PythonSource.create(TableOptions.ofProperties(options.asCaseSensitiveMap()).with(Map.of()));
        return inferred.inferSchema();
    }

    @Override
    public Transform[] inferPartitioning(CaseInsensitiveStringMap options) {
        return new Transform[0];
    }

    /** {@code properties} are the options of the read or write, or what CREATE TABLE put into the session catalog. */
    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        SparkVersion.check();
        return new PravegaTable(schema, TableOptions.ofProperties(properties), inferred);
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }
}
