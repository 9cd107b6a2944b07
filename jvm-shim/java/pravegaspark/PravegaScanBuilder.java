package pravegaspark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.sources.Filter;

/** Passes filters on to the Python source, as Spark does without the jar. */
final class PravegaScanBuilder implements SupportsPushDownFilters {
    private final SupportsPushDownFilters python;
    private final String place;

    private PravegaScanBuilder(SupportsPushDownFilters python, String place) {
        this.python = python;
        this.place = place;
    }

    /** A builder that takes filters if Python's does, which it does not on Spark 4.0. */
    static ScanBuilder around(ScanBuilder python, String place) {
        return python instanceof SupportsPushDownFilters filtering
            ? new PravegaScanBuilder(filtering, place)
            : () -> new PravegaScan(python.build(), place);
    }

    @Override
    public Scan build() {
        return new PravegaScan(python.build(), place);
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
