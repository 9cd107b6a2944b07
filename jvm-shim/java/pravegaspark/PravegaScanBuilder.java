package pravegaspark;

import java.util.function.Supplier;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.sources.Filter;

/**
 * Passes filters on to the Python source, where that takes any. What it plans for them it keeps for all later scans,
 * with these filters, others or none: so a scan with filters has a source of its own.
 */
final class PravegaScanBuilder implements SupportsPushDownFilters {
    private final Supplier<ScanBuilder> own;
    private SupportsPushDownFilters python;
    private final String place;
    private final boolean isNative;

    private PravegaScanBuilder(
            SupportsPushDownFilters python, Supplier<ScanBuilder> own, String place, boolean isNative) {
        this.python = python;
        this.own = own;
        this.place = place;
        this.isNative = isNative;
    }

    /**
     * A builder that takes filters if Python's does, which it does not on Spark 4.0.
     *
     * @param own makes one of a source that plans nothing else
     */
    static ScanBuilder around(ScanBuilder python, Supplier<ScanBuilder> own, String place, boolean isNative) {
        return python instanceof SupportsPushDownFilters filtering
            ? new PravegaScanBuilder(filtering, own, place, isNative)
            : () -> new PravegaScan(python.build(), place, isNative);
    }

    @Override
    public Scan build() {
        return new PravegaScan(python.build(), place, isNative);
    }

    @Override
    public Filter[] pushFilters(Filter[] filters) {
        python = (SupportsPushDownFilters) own.get();
        return python.pushFilters(filters);
    }

    @Override
    public Filter[] pushedFilters() {
        return python.pushedFilters();
    }
}
