package pravegaspark;

import java.util.function.Supplier;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.sources.Filter;

/**
 * Passes filters on to a Python source that takes some. What that plans for them it keeps for all later scans, with
 * these filters, others or none: so a scan with filters has a source of its own.
 */
final class PravegaScanBuilder implements SupportsPushDownFilters {
    private final Supplier<SupportsPushDownFilters> own;
    private SupportsPushDownFilters python;
    private final String place;
    private final boolean isNative;

    /**
     * Makes the builder of one scan.
     *
     * @param python makes scans without filters
     * @param own gives the builder of a scan with filters
     */
    PravegaScanBuilder(
            SupportsPushDownFilters python, Supplier<SupportsPushDownFilters> own, String place, boolean isNative) {
        this.python = python;
        this.own = own;
        this.place = place;
        this.isNative = isNative;
    }

    @Override
    public Scan build() {
        return new PravegaScan(python.build(), place, isNative);
    }

    @Override
    public Filter[] pushFilters(Filter[] filters) {
        python = own.get();
        return python.pushFilters(filters);
    }

    @Override
    public Filter[] pushedFilters() {
        return python.pushedFilters();
    }
}
