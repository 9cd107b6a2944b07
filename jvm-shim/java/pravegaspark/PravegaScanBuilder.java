package pravegaspark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.sources.Filter;

/** Passes filters on to the Python source, as Spark does without the jar. */
final class PravegaScanBuilder implements SupportsPushDownFilters {
    private final SupportsPushDownFilters python;
    private final String place;

    PravegaScanBuilder(ScanBuilder python, String place) {
        this.python = (SupportsPushDownFilters) python;
        this.place = place;
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
