package pravegaspark;

import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;

/** Numbers for {@code sources[].metrics} out of the offsets' JSON; what an offset does not have is left out. */
final class SourceMetrics {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** What the Python source reports beside the latest position. */
    private static final String[] REPORTED = {"lag_bytes", "lag_events"};

    private SourceMetrics() {}

    static Map<String, String> of(String reported, Optional<String> consumed) {
        Map<String, String> metrics = new TreeMap<>();
        JsonNode latest = parsed(reported);
        JsonNode done = parsed(consumed.orElse(null));
        for (String name : REPORTED) {
            if (latest.path(name).isNumber()) {
                metrics.put(name, latest.path(name).asText());
            }
        }
        if (latest.path("streams").isObject()) {
            metrics.put("streams", Integer.toString(latest.path("streams").size()));
            metrics.put("segments", Integer.toString(segments(latest.path("streams"))));
        }
        if (done.path("from").isObject()) {
            metrics.put("last_batch_bytes", Long.toString(bytesOfBatch(done)));
        }
        return metrics;
    }

    /**
     * Bytes between the start of the batch and its end, which a segment that was read to its seal has in {@code ended}.
     * A segment that the start has as null, or an ended one that it does not name, was read from its beginning: the one
     * before it had nothing left. One that only the end names stands where it stood, since version 2 of the offset.
     */
    private static long bytesOfBatch(JsonNode end) {
        long total = 0;
        boolean repeats = end.path("version").asInt() < 2;
        for (Map.Entry<String, JsonNode> stream : end.path("from").properties()) {
            for (String member : new String[] {"ended", "streams"}) {
                for (Map.Entry<String, JsonNode> segment : end.path(member).path(stream.getKey()).properties()) {
                    if (!repeats && member.equals("streams") && !stream.getValue().has(segment.getKey())) {
                        continue;
                    }
                    long start = stream.getValue().path(segment.getKey()).asLong(0);
                    total += Math.max(0, segment.getValue().asLong(start) - start);
                }
            }
        }
        return total;
    }

    private static int segments(JsonNode streams) {
        int count = 0;
        for (JsonNode cut : streams) {
            count += cut.size();
        }
        return count;
    }

    /** Numbers for people must never stop a query: what is no JSON has no numbers. */
    private static JsonNode parsed(String text) {
        try {
            return text == null ? MissingNode.getInstance() : JSON.readTree(text);
        } catch (JsonProcessingException error) {
            return MissingNode.getInstance();
        }
    }
}
