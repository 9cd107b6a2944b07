package pravegaspark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

import org.apache.spark.SparkBuildInfo;

/** Classes under {@code execution.datasources.v2.python} change with any minor version: the jar is for one of them. */
final class SparkVersion {
    private static final String RESOURCE = "/pravegaspark/build.properties";

    private SparkVersion() {}

    /** {@code UnsupportedOperationException} unless this Spark has the minor version that the jar was built with. */
    static void check() {
        String built = builtFor();
        String running = SparkBuildInfo.spark_version();
        if (!minor(running).equals(minor(built))) {
            throw new UnsupportedOperationException(
                "the pravega-spark jar was built for Spark " + minor(built) + ", but this is Spark " + running
                    + "; take the jar out of spark.jars (the Python package works without it), or install the"
                    + " pravega-spark that was built for this Spark");
        }
    }

    private static String builtFor() {
        try (InputStream stream = SparkVersion.class.getResourceAsStream(RESOURCE)) {
            if (stream == null) {
                throw new IllegalStateException("the pravega-spark jar lacks " + RESOURCE + "; build it again");
            }
            Properties properties = new Properties();
            properties.load(stream);
            return properties.getProperty("spark", "?");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String minor(String version) {
        String[] parts = version.split("\\.");
        return parts.length < 2 ? version : parts[0] + "." + parts[1];
    }
}
