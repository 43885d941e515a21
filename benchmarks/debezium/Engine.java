import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** Debezium's embedded engine in this JVM, without JSON: Engine NAME JOB. Its queue and batches are ten times its defaults, and it
 *  polls each 20 ms instead of 500. */
public class Engine {
    public static void main(String[] arguments) throws Exception {
        Meter meter = new Meter(arguments[1]); // which keeps the output as it is now
        System.setOut(System.err);
        java.util.logging.Logger.getLogger("com.github.shyiko").setLevel(java.util.logging.Level.OFF);
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class)
            .using(properties(meter, Path.of(arguments[1]).resolveSibling("offsets")))
            .using((success, message, error) -> {
                System.err.println(message);
                Runtime.getRuntime().halt(1);
            })
            .notifying((DebeziumEngine.ChangeConsumer<ChangeEvent<SourceRecord, SourceRecord>>) (records, committer) -> {
                try {
                    for (ChangeEvent<SourceRecord, SourceRecord> record : records) {
                        take(meter, record.value());
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                    meter.more();
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            })
            .build();
        engine.run();
    }

    private static Properties properties(Meter meter, Path offsets) throws IOException {
        boolean isMariaDB = "mariadb".equals(meter.word("flavor"));
        Properties found = new Properties();
        Map<String, Object> options = new HashMap<>();
        options.put("name", "bench");
        options.put("topic.prefix", "bench");
        options.put("connector.class", isMariaDB ? "io.debezium.connector.mariadb.MariaDbConnector" : "io.debezium.connector.mysql.MySqlConnector");
        options.put("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        options.put("offset.storage.file.filename", offsets);
        write(offsets, meter);
        options.put("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        options.put("snapshot.mode", "recovery"); // the tables' columns, and then the log from the offset on
        options.put("database.hostname", meter.word("host"));
        options.put("database.port", meter.word("port"));
        options.put("database.user", meter.word("user"));
        options.put("database.password", meter.word("password"));
        options.put("database.server.id", meter.word("server_id"));
        options.put("database.include.list", meter.word("schema"));
        options.put("driver.allowPublicKeyRetrieval", "true");
        options.put("include.schema.changes", "false");
        options.put("tombstones.on.delete", "false");
        options.put("decimal.handling.mode", "string");
        options.put("time.precision.mode", "adaptive_time_microseconds");
        options.put("max.batch.size", "20480");
        options.put("max.queue.size", "81920");
        options.put("poll.interval.ms", "20");
        options.forEach((name, value) -> found.setProperty(name, value.toString()));
        return found;
    }

    /** Write a file of offsets as the engine keeps it, with where the job begins. */
    private static void write(Path path, Meter meter) throws IOException {
        String at = "{\"file\":\"" + meter.word("journal") + "\",\"pos\":" + meter.word("offset")
            + ",\"gtids\":\"" + meter.word("gtids") + "\"}";
        byte[] key = "[\"bench\",{\"server\":\"bench\"}]".getBytes(StandardCharsets.UTF_8);
        try (ObjectOutputStream out = new ObjectOutputStream(Files.newOutputStream(path))) {
            out.writeObject(new HashMap<>(Map.of(key, at.getBytes(StandardCharsets.UTF_8))));
        }
    }

    private static void take(Meter meter, SourceRecord record) {
        if (!(record.value() instanceof Struct change) || change.schema().field("after") == null) {
            return;
        }
        Struct after = change.getStruct("after");
        Object[] row = values(after);
        meter.row(((Number) row[0]).longValue(), meter.update ? values(change.getStruct("before")) : null, row);
    }

    private static Object[] values(Struct image) {
        List<Field> fields = image.schema().fields();
        Object[] made = new Object[fields.size()];
        for (int i = 0; i < made.length; i++) {
            made[i] = value(fields.get(i), image.get(fields.get(i)));
        }
        return made;
    }

    /** As Meter takes it: times as microseconds, an ENUM as its number, bytes as bytes. */
    private static Object value(Field field, Object value) {
        String name = field.schema().name();
        if (value == null || name == null) {
            return value instanceof ByteBuffer bytes ? bytes.array() : value;
        }
        return switch (name) {
            case "io.debezium.time.Timestamp" -> (Long) value * 1000;
            case "io.debezium.time.ZonedTimestamp" -> Instant.parse((String) value).getEpochSecond() * 1_000_000
                + Instant.parse((String) value).getNano() / 1000;
            case "io.debezium.time.Date" -> (Integer) value * 86_400_000_000L;
            case "io.debezium.data.Enum" -> 1 + Arrays.asList(field.schema().parameters().get("allowed").split(",")).indexOf(value);
            default -> value instanceof ByteBuffer bytes ? bytes.array() : value;
        };
    }
}
