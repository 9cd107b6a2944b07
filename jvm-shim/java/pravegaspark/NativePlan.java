package pravegaspark;

import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * What a partition reads, as the Python source planned it for this reader ({@code pravega_spark/source/native_plan.py}).
 *
 * <p>The plan is a text in the pickled partition: {@link #MARK}, three numbers of fixed width, and JSON. The first two
 * numbers say where Python begins to read: the index of a span, and an offset in it. To hand the rest of a partition to
 * Python they are overwritten in a copy of the pickled bytes, which keep their length.
 *
 * @param pickled the whole partition
 * @param numbersAt where in it the numbers begin
 */
record NativePlan(byte[] pickled, int numbersAt, List<Span> spans) implements Serializable {
    private static final byte[] MARK = "pravega-spark native plan 1 ".getBytes(StandardCharsets.US_ASCII);
    private static final int SPAN_DIGITS = 10;
    private static final int OFFSET_DIGITS = 20;
    private static final int LENGTH_DIGITS = 10;
    private static final int NUMBERS_BYTES = SPAN_DIGITS + 1 + OFFSET_DIGITS + 1 + LENGTH_DIGITS + 1;

    /** The bytes of a segment from {@code start} to {@code end}, both between two events, and the store that has them. */
    record Span(
            String segment, String scope, String stream, long segmentId, long start, long end, String host, int port)
            implements Serializable {
    }

    /** The plan in a pickled partition; empty when Python is to read it. */
    static Optional<NativePlan> in(byte[] pickled) {
        int found = indexOfMark(pickled);
        if (found < 0) {
            return Optional.empty();
        }
        int numbers = found + MARK.length;
        int text = numbers + NUMBERS_BYTES;
        int length = Integer.parseInt(new String(pickled, text - 1 - LENGTH_DIGITS, LENGTH_DIGITS, StandardCharsets.US_ASCII));
        return Optional.of(new NativePlan(pickled, numbers, parsed(new String(pickled, text, length, StandardCharsets.US_ASCII))));
    }

    /** The pickled partition, of which Python reads the spans from an index on, the first of them from an offset. */
    byte[] from(int span, long offset) {
        byte[] resumed = pickled.clone();
        String numbers = String.format(Locale.ROOT, "%0" + SPAN_DIGITS + "d %0" + OFFSET_DIGITS + "d", span, offset);
        System.arraycopy(numbers.getBytes(StandardCharsets.US_ASCII), 0, resumed, numbersAt, numbers.length());
        return resumed;
    }

    private static List<Span> parsed(String text) {
        List<Span> spans = new ArrayList<>();
        try {
            for (JsonNode item : new ObjectMapper().readTree(text)) {
                spans.add(new Span(
                    item.get("segment").asText(), item.get("scope").asText(), item.get("stream").asText(),
                    item.get("segment_id").asLong(), item.get("start").asLong(), item.get("end").asLong(),
                    item.get("host").asText(), item.get("port").asInt()));
            }
        } catch (IOException error) {
            throw new IllegalStateException("the plan of a partition is no JSON: " + text, error);
        }
        return spans;
    }

    private static int indexOfMark(byte[] pickled) {
        for (int at = 0; at + MARK.length + NUMBERS_BYTES <= pickled.length; at++) {
            if (pickled[at] == MARK[0] && Arrays.equals(pickled, at, at + MARK.length, MARK, 0, MARK.length)) {
                return at;
            }
        }
        return -1;
    }
}
