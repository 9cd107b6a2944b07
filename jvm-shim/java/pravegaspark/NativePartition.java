package pravegaspark;

import java.util.Optional;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;

/** A partition of the Python source that this JVM reads itself, as far as it can. */
record NativePartition(InputPartition python, NativePlan plan) implements InputPartition {
    private static final long serialVersionUID = 1;

    /** The partitions of the Python source, each as a native one if all can be: Spark takes rows or columns, not both. */
    static InputPartition[] planned(InputPartition[] partitions) {
        InputPartition[] made = new InputPartition[partitions.length];
        for (int index = 0; index < partitions.length; index++) {
            Optional<NativePlan> plan = NativePlan.in(pickled(partitions[index]));
            if (plan.isEmpty()) {
                return partitions;
            }
            made[index] = new NativePartition(partitions[index], plan.get());
        }
        return made;
    }

    /** What Python reads of this partition, from a span's index and an offset in it on. */
    InputPartition rest(int span, long offset) {
        byte[] rest = plan.from(span, offset);
        return python instanceof PythonStreamingInputPartition streaming
            ? new PythonStreamingInputPartition(streaming.index(), rest, streaming.blockId())
            : new PythonInputPartition(((PythonInputPartition) python).index(), rest);
    }

    /** Without bytes, and so without a plan, where it is of a kind that is not known here. */
    private static byte[] pickled(InputPartition partition) {
        if (partition instanceof PythonStreamingInputPartition streaming) {
            // A block has rows that the driver read already.
            return streaming.blockId().isEmpty() ? streaming.pickedPartition() : new byte[0];
        }
        return partition instanceof PythonInputPartition batch ? batch.pickedPartition() : new byte[0];
    }
}
