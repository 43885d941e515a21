import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;

/** Debezium's embedded engine with the properties of one file, whose records go at once into the task of its JDBC sink, with those of
 *  another. Says "marked" when a row of a table named marker comes; when as many other rows as the third argument says are committed,
 *  after how many seconds that was, from the first of them on. Ends when its stdin does. */
public class Sink {
    private static long began = 0;
    private static long offset = 0;
    private static long left;

    public static void main(String[] arguments) throws Exception {
        left = Long.parseLong(arguments[2]);
        Map<String, String> options = new HashMap<>();
        read(arguments[1]).forEach((name, value) -> options.put((String) name, (String) value));
        JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
        task.start(options);
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class)
                .using(read(arguments[0]))
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(message);
                        if (error != null) {
                            error.printStackTrace();
                        }
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying((DebeziumEngine.ChangeConsumer<ChangeEvent<SourceRecord, SourceRecord>>) (records, committer) -> {
                    write(records, task);
                    for (ChangeEvent<SourceRecord, SourceRecord> record : records) {
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                })
                .build();
        Thread ender = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException error) {
                // The other end is gone, which is what this waits for.
            }
            Runtime.getRuntime().halt(0);
        });
        ender.setDaemon(true);
        ender.start();
        engine.run();
    }

    private static Properties read(String path) throws java.io.IOException {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(path))) {
            properties.load(reader);
        }
        return properties;
    }

    private static void write(List<ChangeEvent<SourceRecord, SourceRecord>> records, JdbcSinkConnectorTask task) {
        List<SinkRecord> rows = new ArrayList<>(records.size());
        for (ChangeEvent<SourceRecord, SourceRecord> event : records) {
            SourceRecord record = event.value();
            if (!(record.value() instanceof Struct value) || value.schema().field("after") == null) {
                continue;
            }
            if (value.getStruct("source").getString("table").equals("marker")) {
                System.out.println("marked");
                continue;
            }
            rows.add(new SinkRecord(record.topic(), 0, record.keySchema(), record.key(), record.valueSchema(), value, offset++));
        }
        if (rows.isEmpty()) {
            return;
        }
        began = began == 0 ? System.nanoTime() : began;
        task.put(rows);
        if (task.getLastProcessingException() != null) {
            throw new IllegalStateException(task.getLastProcessingException());
        }
        left -= rows.size();
        if (left == 0) {
            System.out.println((System.nanoTime() - began) / 1e9);
        }
    }
}
