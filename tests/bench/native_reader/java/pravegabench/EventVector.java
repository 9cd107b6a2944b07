package pravegabench;

import java.util.Arrays;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.BinaryView;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of events that lie where they were received: an address and a length each. */
final class EventVector extends ColumnVector {
    private long base;
    private int[] starts = new int[1024];
    private int[] lengths = new int[1024];
    private int count;

    EventVector() {
        super(DataTypes.BinaryType);
    }

    void restart(long address) {
        base = address;
        count = 0;
    }

    void add(int start, int length) {
        if (count == starts.length) {
            starts = Arrays.copyOf(starts, count * 2);
            lengths = Arrays.copyOf(lengths, count * 2);
        }
        starts[count] = start;
        lengths[count++] = length;
    }

    int count() {
        return count;
    }

    @Override
    public byte[] getBinary(int row) {
        byte[] event = new byte[lengths[row]];
        Platform.copyMemory(null, base + starts[row], event, Platform.BYTE_ARRAY_OFFSET, event.length);
        return event;
    }

    @Override
    public BinaryView getBinaryView(int row) {
        return BinaryView.fromAddress(null, base + starts[row], lengths[row]);
    }

    @Override
    public void close() {
    }

    @Override
    public boolean hasNull() {
        return false;
    }

    @Override
    public int numNulls() {
        return 0;
    }

    @Override
    public boolean isNullAt(int row) {
        return false;
    }

    @Override
    public boolean getBoolean(int row) {
        throw notThis();
    }

    @Override
    public byte getByte(int row) {
        throw notThis();
    }

    @Override
    public short getShort(int row) {
        throw notThis();
    }

    @Override
    public int getInt(int row) {
        throw notThis();
    }

    @Override
    public long getLong(int row) {
        throw notThis();
    }

    @Override
    public float getFloat(int row) {
        throw notThis();
    }

    @Override
    public double getDouble(int row) {
        throw notThis();
    }

    @Override
    public ColumnarArray getArray(int row) {
        throw notThis();
    }

    @Override
    public ColumnarMap getMap(int row) {
        throw notThis();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        throw notThis();
    }

    @Override
    public UTF8String getUTF8String(int row) {
        throw notThis();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw notThis();
    }

    private static UnsupportedOperationException notThis() {
        return new UnsupportedOperationException("events are bytes");
    }
}
