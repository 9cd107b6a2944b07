package pravegaspark;

import java.util.Map;

import org.apache.spark.SparkThrowable;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One Python source with its options. Spark keeps the Python object in it from the first use on, with the options of
 * that use: so another set of options needs another instance.
 */
final class PythonSource {
    private final PythonDataSourceV2 source;
    private final CaseInsensitiveStringMap options;

    private PythonSource(PythonDataSourceV2 source, CaseInsensitiveStringMap options) {
        this.source = source;
        this.options = options;
    }

    /** {@code IllegalStateException} when Spark's Python does not have the package. */
    static PythonSource create(CaseInsensitiveStringMap options) {
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(PravegaSource.FORMAT);
        try {
            source.source();
        } catch (Throwable error) {
            // Scala throws checked exceptions that the compiler does not know of.
            if (isNotFound(error)) {
                throw new IllegalStateException(packageMissing(""), error);
            }
            throw error;
        }
        return new PythonSource(source, options);
    }

    private static boolean isNotFound(Throwable error) {
        return error instanceof SparkThrowable known && "DATA_SOURCE_NOT_EXIST".equals(known.getCondition());
    }

    static String packageMissing(String detail) {
        return "the pravega-spark jar is there, but the Python that Spark uses (" + interpreter().pythonExec()
            + ") does not have its package; run: " + interpreter().pythonExec() + " -m pip install pravega-spark,"
            + " or name another Python with spark.pyspark.python" + detail;
    }

    /** The Python in which Spark looks for sources, and what it sets in its environment. */
    static SimplePythonFunction interpreter() {
        return PythonUtils$.MODULE$.createPythonFunction(new byte[0]);
    }

    /** Where that Python finds PySpark when it is not installed there. */
    static String sparkPythonPath() {
        return PythonUtils.sparkPythonPath();
    }

    boolean has(CaseInsensitiveStringMap other) {
        return options.equals(other);
    }

    StructType inferSchema() {
        return source.inferSchema(options);
    }

    ScanBuilder newScanBuilder(StructType schema) {
        return ((SupportsRead) table(schema)).newScanBuilder(options);
    }

    WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return ((SupportsWrite) table(info.schema())).newWriteBuilder(info);
    }

    private Table table(StructType schema) {
        return source.getTable(schema, new Transform[0], Map.of());
    }
}
