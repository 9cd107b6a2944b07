package pravegaspark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.sources.Filter;

/** Passes filters on to the Python source, as Spark does without the jar. */
final class PravegaScanBuilder implements SupportsPushDownFilters {
    private final SupportsPushDownFilters python;
    private final String place;
    private final boolean isNative;

    private PravegaScanBuilder(SupportsPushDownFilters python, String place, boolean isNative) {
        this.python = python;
        this.place = place;
        this.isNative = isNative;
    }

    /** A builder that takes filters if Python's does, which it does not on Spark 4.0. */
    static ScanBuilder around(ScanBuilder python, String place, boolean isNative) {
        return python instanceof SupportsPushDownFilters filtering
            ? new PravegaScanBuilder(filtering, place, isNative)
            : () -> new PravegaScan(python.build(), place, isNative);
    }

    @Override
    public Scan build() {
        return new PravegaScan(python.build(), place, isNative);
    }

    @Override
    public Filter[] pushFilters(Filter[] filters) {
        return python.pushFilters(filters);
    }

    @Override
    public Filter[] pushedFilters() {
        return python.pushedFilters();
    }
}
