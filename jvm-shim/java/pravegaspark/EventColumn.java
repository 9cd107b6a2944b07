package pravegaspark;

import java.util.Arrays;

import org.apache.spark.sql.types.DataTypes;

/** The bytes of events, copied for each that is asked for. */
final class EventColumn extends PlainColumn {
    private final EventRows rows;

    EventColumn(EventRows rows) {
        super(DataTypes.BinaryType);
        this.rows = rows;
    }

    @Override
    public byte[] getBinary(int row) {
        int start = rows.start(row);
        return Arrays.copyOfRange(rows.bytes(), start, start + rows.length(row));
    }
}
