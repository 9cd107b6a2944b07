package pravegaspark;

import org.apache.spark.sql.types.DataTypes;

/** The offsets of events in their segment. */
final class OffsetColumn extends PlainColumn {
    private final EventRows rows;

    OffsetColumn(EventRows rows) {
        super(DataTypes.LongType);
        this.rows = rows;
    }

    @Override
    public long getLong(int row) {
        return rows.offset(row);
    }
}
