package pravegaspark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options that a table has by itself, and how those of one query go before them. Names count as the Python side
 * counts them: without case and underscores.
 *
 * @param identity where the table is, which no query may change
 * @param defaults what holds unless a query says otherwise
 */
record TableOptions(Map<String, String> identity, Map<String, String> defaults) {
    /** What Spark itself puts among the properties of a table. */
    static final Set<String> RESERVED = Set.of(
        TableCatalog.PROP_LOCATION, TableCatalog.PROP_IS_MANAGED_LOCATION, TableCatalog.PROP_EXTERNAL,
        TableCatalog.PROP_COMMENT, TableCatalog.PROP_COLLATION,
        TableCatalog.PROP_PROVIDER, TableCatalog.PROP_OWNER);

    /** By its plain name. */
    private static final String PUSH_FILTERS = "pushfilters";

    /** Of the properties that describe the stream as it is. */
    private static final String SHOWN_PREFIX = "stream.";

    /** Options of a read or write, or the properties of a table of the session catalog. */
    static TableOptions ofProperties(Map<String, String> properties) {
        Map<String, String> kept = withoutReserved(properties);
        // The session catalog gives every table a folder as its path.
        if (kept.containsKey("scope") && kept.getOrDefault("path", "").contains(":/")) {
            kept.remove("path");
        }
        return new TableOptions(Map.of(), kept);
    }

    /**
     * Without what is Spark's, and without what only DESCRIBE and SHOW CREATE TABLE show. An option of CREATE TABLE
     * comes twice, once with a prefix.
     */
    static Map<String, String> withoutReserved(Map<String, String> properties) {
        Map<String, String> kept = new HashMap<>();
        for (Map.Entry<String, String> entry : properties.entrySet()) {
            String key = entry.getKey();
            // Spark 4.0 has no constant for table_type.
            boolean isSparks = RESERVED.contains(key) || key.equals("table_type") || key.startsWith(TableCatalog.OPTION_PREFIX)
                || key.startsWith(SHOWN_PREFIX) || key.equals("transient_lastDdlTime") || key.equals("serialization.format");
            if (!isSparks) {
                kept.put(key, entry.getValue());
            }
        }
        return kept;
    }

    /** {@code IllegalArgumentException} when the query names another place than the table's. */
    CaseInsensitiveStringMap with(Map<String, String> query) {
        Map<String, String> merged = new HashMap<>();
        Map<String, String> plainIdentity = byPlainName(identity);
        Map<String, String> plainQuery = byPlainName(query);
        for (Map.Entry<String, String> entry : query.entrySet()) {
            String plain = plain(entry.getKey());
            String fixed = plainIdentity.get(plain);
            if (fixed == null && !(plain.equals("path") && !identity.isEmpty())) {
                merged.put(entry.getKey(), entry.getValue());
            } else if (!entry.getValue().equals(fixed)) {
                throw new IllegalArgumentException("option '" + entry.getKey() + "' is '" + entry.getValue()
                    + "', but the table already says where it is (" + describe(identity) + "); leave the option out");
            }
        }
        for (Map.Entry<String, String> entry : defaults.entrySet()) {
            String plain = plain(entry.getKey());
            if (!plainQuery.containsKey(plain) && !plainIdentity.containsKey(plain)) {
                merged.put(entry.getKey(), entry.getValue());
            }
        }
        merged.putAll(identity);
        return new CaseInsensitiveStringMap(merged);
    }

    /** For people: {@code scope/stream at controller}. */
    static String describe(Map<String, String> options) {
        Map<String, String> plain = byPlainName(options);
        String path = plain.get("path");
        String place = path != null ? path : plain.getOrDefault("scope", "?") + "/" + plain.getOrDefault("stream", "?");
        String controller = plain.get("controller");
        return controller == null ? place : place + " at " + controller;
    }

    /** Whether the user wants this JVM to read, which Python decides then for each partition. */
    static boolean isNative(Map<String, String> options) {
        return says(options, "nativereader", "true");
    }

    /** Whether the user wants Python to read only what filters leave. */
    static boolean takesFilters(Map<String, String> options) {
        return says(options, PUSH_FILTERS, "true") || says(options, PUSH_FILTERS, "once");
    }

    /** The options with another word for whether, and for how many queries, Python takes filters. */
    static CaseInsensitiveStringMap takingFilters(CaseInsensitiveStringMap options, String word) {
        Map<String, String> made = new HashMap<>(options.asCaseSensitiveMap());
        made.replaceAll((key, value) -> plain(key).equals(PUSH_FILTERS) ? word : value);
        return new CaseInsensitiveStringMap(made);
    }

    /** Whether events hold records, whose columns have other names. */
    static boolean holdsRecords(Map<String, String> options) {
        return says(options, "format", "record");
    }

    /** As Python reads a word: in any case of letters, and with space around it. */
    private static boolean says(Map<String, String> options, String plainName, String word) {
        String value = byPlainName(options).get(plainName);
        return value != null && value.strip().equalsIgnoreCase(word);
    }

    private static Map<String, String> byPlainName(Map<String, String> options) {
        Map<String, String> made = new HashMap<>();
        options.forEach((key, value) -> made.put(plain(key), value));
        return made;
    }

    static String plain(String name) {
        return name.replace("_", "").toLowerCase(Locale.ROOT);
    }
}
