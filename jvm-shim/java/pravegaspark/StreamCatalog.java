package pravegaspark;

import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Scopes as namespaces, streams as tables, in calls that all versions of Spark 4 have in common. {@code PravegaCatalog}
 * adds those in which they differ: it is in {@code java-4.0} and {@code java-4.3}.
 *
 * <p>What Python knows already stays there: rows come and go by the Python source, and names are looked up by {@link
 * CatalogHelper}. So it works wherever the Python package works, on a plain Pravega too.
 */
abstract class StreamCatalog implements TableCatalog, SupportsNamespaces {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final String CONTROLLER_DEFAULT = "tcp://localhost:9090";
    private static final String CONTROLLER = "controller";
    /** The options that give a read other columns, in both spellings: Spark asks for them by their names. */
    private static final Set<String> COLUMN_OPTIONS = new TreeSet<>(Set.of("format", "ingest_time", "ingesttime", "metadata"));

    private String name;
    private String controller;
    private Map<String, String> defaults;
    private CatalogHelper helper;
    /** By the values of {@link #COLUMN_OPTIONS}: the columns do not depend on the stream. */
    private final Map<String, StructType> schemas = new ConcurrentHashMap<>();

    @Override
    public void initialize(String catalogName, CaseInsensitiveStringMap options) {
        SparkVersion.check();
        name = catalogName;
        controller = options.getOrDefault(CONTROLLER, CONTROLLER_DEFAULT);
        defaults = new HashMap<>(options.asCaseSensitiveMap());
        defaults.keySet().removeIf(CONTROLLER::equalsIgnoreCase);
        helper = new CatalogHelper(controller);
        // Spark never closes a catalog: the process ends with the session that has forgotten it, or with the JVM.
        CLEANER.register(this, helper::close);
    }

    @Override
    public String name() {
        return name;
    }

    // Namespaces

    @Override
    public String[][] listNamespaces() {
        return names(helper.call("list_scopes", Map.of())).stream()
            .map(scope -> new String[] {scope}).toArray(String[][]::new);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length == 0) {
            return listNamespaces();
        }
        loadNamespaceMetadata(namespace);
        return new String[0][];
    }

    @Override
    public boolean namespaceExists(String[] namespace) {
        return namespace.length == 0
            || namespace.length == 1 && helper.call("scope_exists", Map.of("scope", namespace[0])).asBoolean();
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        if (!namespaceExists(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
        return Map.of();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata)
            throws NamespaceAlreadyExistsException {
        for (String key : metadata.keySet()) {
            if (!key.equals(SupportsNamespaces.PROP_OWNER)) {
                throw new UnsupportedOperationException("a scope has no properties, so it cannot have '" + key + "'");
            }
        }
        if (!helper.call("create_scope", Map.of("scope", scope(namespace))).asBoolean()) {
            throw new NamespaceAlreadyExistsException(namespace);
        }
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw new UnsupportedOperationException("a scope has no properties that could be changed");
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade)
            throws NoSuchNamespaceException, NonEmptyNamespaceException {
        try {
            return helper.call("drop_scope", Map.of("scope", scope(namespace), "cascade", cascade)).asBoolean();
        } catch (CatalogHelper.Refusal error) {
            if (error.is("scope_not_empty")) {
                throw new NonEmptyNamespaceException(namespace);
            }
            throw error;
        }
    }

    private static String scope(String[] namespace) {
        if (namespace.length != 1) {
            throw new IllegalArgumentException(
                "'" + String.join(".", namespace) + "' is no scope; a namespace here is one scope, as in catalog.scope");
        }
        return namespace[0];
    }

    // Tables

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length != 1) {
            throw new NoSuchNamespaceException(namespace);
        }
        try {
            return names(helper.call("list_streams", Map.of("scope", namespace[0]))).stream()
                .map(stream -> Identifier.of(namespace, stream)).toArray(Identifier[]::new);
        } catch (CatalogHelper.Refusal error) {
            if (error.is("no_such_scope")) {
                throw new NoSuchNamespaceException(namespace);
            }
            throw error;
        }
    }

    @Override
    public boolean tableExists(Identifier identifier) {
        return identifier.namespace().length == 1
            && helper.call("find_stream", place(identifier)).path("exists").asBoolean();
    }

    @Override
    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        return loadTable(identifier, Map.of());
    }

    /** The names of the options of a query that decide about the columns. */
    static Set<String> columnOptions() {
        return COLUMN_OPTIONS;
    }

    /** With the options of the query, where Spark gives them. */
    final Table loadTable(Identifier identifier, Map<String, String> query) throws NoSuchTableException {
        if (identifier.namespace().length != 1) {
            throw new NoSuchTableException(identifier);
        }
        Map<String, Object> place = place(identifier);
        JsonNode found = helper.call("find_stream", place);
        if (!found.path("exists").asBoolean()) {
            throw new NoSuchTableException(identifier);
        }
        TableOptions options = options(identifier, texts(found.path("options")));
        StructType schema = schema(options.with(query));
        return new PravegaTable(schema, options, this::schema, () -> texts(helper.call("describe_stream", place)));
    }

    private TableOptions options(Identifier identifier, Map<String, String> own) {
        Map<String, String> identity = Map.of(
            CONTROLLER, controller, "scope", identifier.namespace()[0], "stream", identifier.name());
        Map<String, String> made = new HashMap<>();
        // A table that is there has its stream; one that was dropped meanwhile must not come back as an empty one.
        made.put("allow_create_scope", "false");
        made.put("allow_create_stream", "false");
        made.putAll(new TableOptions(Map.of(), defaults).with(own).asCaseSensitiveMap());
        return new TableOptions(identity, made);
    }

    private StructType schema(CaseInsensitiveStringMap options) {
        String decisive = COLUMN_OPTIONS.stream().map(name -> options.getOrDefault(name, ""))
            .collect(Collectors.joining("/"));
        StructType known = schemas.get(decisive);
        if (known == null) {
            known = PythonSource.create(options).inferSchema();
            schemas.put(decisive, known);
        }
        return known;
    }

    /**
     * Creates the stream of a table.
     *
     * @param columns name and type of each
     */
    final Table createStream(
            Identifier identifier, List<List<String>> columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        check(partitions, properties);
        Map<String, Object> arguments = place(identifier);
        arguments.put("options", TableOptions.withoutReserved(properties));
        arguments.put("columns", columns);
        try {
            if (!helper.call("create_stream", arguments).asBoolean()) {
                throw new TableAlreadyExistsException(identifier);
            }
            return loadTable(identifier);
        } catch (CatalogHelper.Refusal error) {
            if (error.is("no_such_scope")) {
                throw new NoSuchNamespaceException(identifier.namespace());
            }
            throw error;
        } catch (NoSuchTableException error) {
            throw new IllegalStateException("stream " + identifier + " was deleted right after it was created", error);
        }
    }

    @Override
    public Table alterTable(Identifier identifier, TableChange... changes) {
        throw new UnsupportedOperationException("a stream's table cannot be altered: its columns are the source's; give"
            + " options with the query, and change scaling and retention with: pravega-spark stream");
    }

    @Override
    public boolean dropTable(Identifier identifier) {
        return helper.call("drop_stream", place(identifier)).asBoolean();
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException("a stream cannot be renamed");
    }

    private static Map<String, Object> place(Identifier identifier) {
        return new HashMap<>(Map.of("scope", scope(identifier.namespace()), "stream", identifier.name()));
    }

    private static List<String> names(JsonNode array) {
        List<String> made = new ArrayList<>();
        array.forEach(item -> made.add(item.asText()));
        return made;
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> made = new TreeMap<>();
        object.properties().forEach(entry -> made.put(entry.getKey(), entry.getValue().asText()));
        return made;
    }

    /** Refuses what CREATE TABLE may ask for and a stream cannot have. */
    private static void check(Transform[] partitions, Map<String, String> properties) {
        String provider = properties.getOrDefault(PROP_PROVIDER, PravegaSource.FORMAT);
        if (!provider.equalsIgnoreCase(PravegaSource.FORMAT)) {
            throw new IllegalArgumentException("USING " + provider
                + " cannot be: tables of this catalog are streams; leave it out, or say USING pravega");
        }
        for (String key : List.of(TableCatalog.PROP_LOCATION, TableCatalog.PROP_COMMENT)) {
            if (properties.containsKey(key)) {
                throw new UnsupportedOperationException("a stream has no " + key + "; leave it out");
            }
        }
        if (partitions.length > 0) {
            throw new UnsupportedOperationException(
                "a stream is not partitioned by columns; leave PARTITIONED BY out, and set default_num_segments");
        }
    }
}
