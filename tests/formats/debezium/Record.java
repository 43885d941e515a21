import io.debezium.engine.*;
import io.debezium.engine.format.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

/** Runs one Debezium engine for each properties file, and writes what it gives as lines: {"key":…,"value":…,"headers":…}. */
public class Record {
    public static void main(String[] files) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        List<DebeziumEngine<?>> engines = new ArrayList<>();
        for (String file : files) {
            Properties properties = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(file))) { properties.load(reader); }
            PrintWriter out = new PrintWriter(new FileWriter(file.replace(".properties", ".jsonl"), StandardCharsets.UTF_8), true);
            DebeziumEngine<?> engine = DebeziumEngine.create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
                .using(properties)
                .notifying(event -> {
                    StringBuilder line = new StringBuilder("{\"topic\":\"" + event.destination() + "\",\"key\":" + event.key() + ",\"value\":" + event.value() + ",\"headers\":{");
                    String comma = "";
                    for (var header : event.headers()) {
                        line.append(comma).append("\"").append(header.getKey()).append("\":").append(header.getValue());
                        comma = ",";
                    }
                    synchronized (out) { out.println(line.append("}}")); }
                })
                .using((boolean ok, String message, Throwable error) -> { System.err.println("END " + file + " " + ok + " " + message + " " + error); })
                .build();
            engines.add(engine);
            threads.execute(engine);
        }
        System.in.read();
        for (var engine : engines) engine.close();
        System.exit(0);
    }
}
