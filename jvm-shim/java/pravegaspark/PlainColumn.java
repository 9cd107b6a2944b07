package pravegaspark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column without nulls and without memory of its own; each kind of value that it does not have is an error. */
abstract class PlainColumn extends ColumnVector {
    PlainColumn(DataType type) {
        super(type);
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
    public byte[] getBinary(int row) {
        throw notThis();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw notThis();
    }

    private UnsupportedOperationException notThis() {
        return new UnsupportedOperationException("a column of " + dataType().sql());
    }
}
