package pravegaspark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.api.python.SimplePythonFunction;

/**
 * The catalog's hands in Python: one process that is asked and answers by lines of JSON, so that looking streams up
 * needs no second client of the controller in Java. It is started by the first call and again when it has died; it ends
 * when its input does, so also when the JVM is killed. One call at a time.
 */
final class CatalogHelper implements AutoCloseable {
    private static final String MODULE = "pravega_spark.jvm.catalog_helper";
    /** Sealing and deleting a stream of many segments takes the longest. */
    private static final long CALL_SECONDS_MAX = 180;
    /** How much of what Python wrote to its error output goes into an error. */
    private static final int LOG_CHARS_MAX = 2_000;
    /** Put by the reading thread when there is no more to read; no answer is an empty line. */
    private static final String END = "";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String controller;
    private Running running;
    private long calls;
    private boolean closed;

    CatalogHelper(String controller) {
        this.controller = controller;
    }

    /**
     * The answer to one call, null in JSON if there is none. {@link Refusal} for an error that Python names, {@code
     * IllegalArgumentException} for bad input, {@code IllegalStateException} when there is no answer.
     */
    synchronized JsonNode call(String method, Map<String, ?> arguments) {
        if (closed) {
            throw new IllegalStateException("the catalog is closed; use a running session");
        }
        Map<String, Object> request = new HashMap<>(arguments);
        request.put("call", method);
        request.put("id", ++calls);
        JsonNode answer = exchange(method, request);
        JsonNode error = answer.path("error");
        if (error.isMissingNode()) {
            return answer.path("answer");
        }
        String message = error.path("message").asText();
        if (error.path("kind").asText().equals("invalid")) {
            throw new IllegalArgumentException(message);
        }
        throw new Refusal(error.path("kind").asText(), message);
    }

    private JsonNode exchange(String method, Map<String, Object> request) {
        try {
            send(JSON.writeValueAsString(request) + "\n");
            String line = running.answers.poll(CALL_SECONDS_MAX, TimeUnit.SECONDS);
            if (line == null) {
                throw new IOException("it did not answer within " + CALL_SECONDS_MAX + " s");
            }
            if (line.equals(END)) {
                // To stop a process closes its outputs: what it wrote last would be lost.
                running.awaitLog();
                throw new IOException("it ended");
            }
            JsonNode answer = JSON.readTree(line);
            if (answer.path("id").asLong() != calls) {
                throw new IOException("it answered another call");
            }
            return answer;
        } catch (IOException error) {
            throw new IllegalStateException(failed(method, error.getMessage()), error);
        } catch (InterruptedException error) {
            running.stop();
            Thread.currentThread().interrupt();
            throw new IllegalStateException("call " + method + " of the catalog was interrupted", error);
        }
    }

    /** Write a call to the process, or to a new one where that has ended. */
    private void send(String line) throws IOException {
        if (running != null && running.process.isAlive()) {
            try {
                running.send(line);
                return;
            } catch (IOException ended) {
                // Java was not told yet. Nobody has read the end of the line, so the call was not made.
                running.stop();
            }
        }
        running = Running.start(controller);
        running.send(line);
    }

    private String failed(String method, String why) {
        running.stop();
        String log = running.log();
        if (log.contains("No module named 'pravega_spark'")) {
            return PythonSource.packageMissing("");
        }
        return "call " + method + " of the catalog failed, and whether it was done is not known: its Python process ("
            + running.executable + " -m " + MODULE + "): " + why + (log.isEmpty() ? "" : "; it wrote: " + log);
    }

    @Override
    public synchronized void close() {
        closed = true;
        if (running != null) {
            running.stop();
        }
    }

    /** An answer that says no; {@code kind} is one of the names in the Python module. */
    static final class Refusal extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final String kind;

        Refusal(String kind, String message) {
            super(message);
            this.kind = kind;
        }

        boolean is(String other) {
            return kind.equals(other);
        }
    }

    /** The process, with a thread for each of its outputs, so that neither can fill up. */
    private static final class Running {
        private final Process process;
        private final String executable;
        private final Writer input;
        private final BlockingQueue<String> answers = new ArrayBlockingQueue<>(2);
        private final StringBuilder log = new StringBuilder();
        private final Thread logReader;

        private Running(Process process, String executable) {
            this.process = process;
            this.executable = executable;
            input = new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8);
            spawn("answers", this::readAnswers);
            logReader = spawn("log", this::readLog);
        }

        static Running start(String controller) {
            SimplePythonFunction python = PythonSource.interpreter();
            ProcessBuilder builder = new ProcessBuilder(python.pythonExec(), "-m", MODULE, controller);
            Map<String, String> environment = builder.environment();
            python.envVars().forEach(environment::put);
            String own = environment.getOrDefault("PYTHONPATH", "");
            String path = PythonSource.sparkPythonPath() + (own.isEmpty() ? "" : java.io.File.pathSeparator + own);
            environment.put("PYTHONPATH", path);
            try {
                return new Running(builder.start(), python.pythonExec());
            } catch (IOException error) {
                throw new IllegalStateException("the catalog cannot start " + python.pythonExec()
                    + "; name a Python with spark.pyspark.python", error);
            }
        }

        void send(String line) throws IOException {
            input.write(line);
            input.flush();
        }

        private Thread spawn(String what, Runnable work) {
            Thread thread = new Thread(work, "pravega-catalog-" + what);
            thread.setDaemon(true);
            thread.start();
            return thread;
        }

        private void readAnswers() {
            try (BufferedReader reader = process.inputReader(StandardCharsets.UTF_8)) {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                    answers.put(line);
                }
                answers.put(END);
            } catch (IOException error) {
                // The process was stopped while it was read: the same as its end.
                answers.offer(END);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        private void readLog() {
            try (BufferedReader reader =
                    new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                    append(line);
                }
            } catch (IOException error) {
                append("(its error output was closed: " + error.getMessage() + ")");
            }
        }

        private void append(String line) {
            synchronized (log) {
                log.append(line).append('\n');
                log.delete(0, Math.max(0, log.length() - LOG_CHARS_MAX));
            }
        }

        /** Wait until all that it wrote is there, of one that has ended or was stopped. */
        void awaitLog() {
            try {
                logReader.join(TimeUnit.SECONDS.toMillis(1));
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        /** What it wrote last, after it was stopped. */
        String log() {
            awaitLog();
            synchronized (log) {
                return log.toString().strip();
            }
        }

        void stop() {
            process.destroy();
        }
    }
}
