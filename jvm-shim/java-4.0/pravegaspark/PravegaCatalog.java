package pravegaspark;

import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;

/**
 * Scopes as namespaces, streams as tables: {@code spark.sql.catalog.NAME=pravegaspark.PravegaCatalog}, with {@code
 * spark.sql.catalog.NAME.controller} and any other option of the source or sink as a default for all its tables.
 *
 * <p>Before 4.3 Spark does not give a catalog the options of a query: see {@link PravegaTable#newScanBuilder}.
 */
public final class PravegaCatalog extends StreamCatalog {
    @Override
    @SuppressWarnings("deprecation") // 4.1 calls it by default for what it has in its place, 4.0 has nothing else.
    public Table createTable(
            Identifier identifier, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        List<List<String>> named = Arrays.stream(columns)
            .map(column -> List.of(column.name(), column.dataType().simpleString())).toList();
        return createStream(identifier, named, partitions, properties);
    }
}
