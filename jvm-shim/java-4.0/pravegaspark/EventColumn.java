package pravegaspark;

/** A column of events. */
final class EventColumn extends BytesColumn {
    EventColumn(EventRows rows) {
        super(rows);
    }
}
