import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;

/** Debezium's embedded engine with the properties of a file: the value of each record as a line of JSON on stdout, flushed
 *  with each batch of the engine. Ends when its stdin does. */
public class Feed {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(reader);
        }
        OutputStream out = new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 20);
        System.setOut(System.err);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(message);
                        if (error != null) {
                            error.printStackTrace();
                        }
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying((DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>>) (records, committer) -> write(records, committer, out))
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

    private static void write(List<ChangeEvent<String, String>> records,
                              DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer, OutputStream out)
            throws InterruptedException {
        try {
            for (ChangeEvent<String, String> record : records) {
                if (record.value() != null) {
                    out.write(record.value().getBytes(StandardCharsets.UTF_8));
                    out.write('\n');
                }
                committer.markProcessed(record);
            }
            out.flush();
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
        committer.markBatchFinished();
    }
}
