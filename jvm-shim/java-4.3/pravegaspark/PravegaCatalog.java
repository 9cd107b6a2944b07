package pravegaspark;

import java.util.Arrays;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableContext;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Scopes as namespaces, streams as tables: {@code spark.sql.catalog.NAME=pravegaspark.PravegaCatalog}, with {@code
 * spark.sql.catalog.NAME.controller} and any other option of the source or sink as a default for all its tables.
 */
public final class PravegaCatalog extends StreamCatalog {
    /** With the options of the query, since some decide about the columns. */
    @Override
    public Table loadTable(Identifier identifier, TableContext context, CaseInsensitiveStringMap options)
            throws NoSuchTableException {
        if (context.timeTravel().isPresent()) {
            throw new UnsupportedOperationException("a stream has no versions; use WITH (start_stream_cut='…')");
        }
        return loadTable(identifier, options.asCaseSensitiveMap());
    }

    @Override
    public Set<String> tableStateOptionKeys() {
        return columnOptions();
    }

    @Override
    public Table createTable(Identifier identifier, TableInfo info)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        List<List<String>> columns = Arrays.stream(info.schema().fields())
            .map(field -> List.of(field.name(), field.dataType().simpleString())).toList();
        return createStream(identifier, columns, info.partitions(), info.properties());
    }
}
