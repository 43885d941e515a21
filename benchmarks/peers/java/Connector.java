import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import com.github.shyiko.mysql.binlog.event.deserialization.json.JsonBinary;
import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;

/** mysql-binlog-connector-java: Connector NAME JOB. Times come as microseconds, JSON is made text. */
public class Connector {
    private final Meter meter;
    private final Map<Long, String> schemas = new HashMap<>();
    private final int json;

    private Connector(Meter meter) {
        this.meter = meter;
        json = "mysql".equals(meter.word("flavor")) ? java.util.List.of(meter.word("kinds").split(",")).indexOf("json") : -1;
    }

    public static void main(String[] arguments) throws Exception {
        java.util.logging.Logger.getLogger("com.github.shyiko").setLevel(java.util.logging.Level.OFF);
        Meter meter = new Meter(arguments[1]);
        BinaryLogClient client =
            new BinaryLogClient(meter.word("host"), (int) meter.number("port"), meter.word("user"), meter.word("password"));
        client.setBinlogFilename(meter.word("journal"));
        client.setBinlogPosition(meter.number("offset"));
        client.setServerId(meter.number("server_id"));
        boolean isCut = "true".equals(meter.word("cuts"));
        client.setKeepAlive(isCut);
        EventDeserializer deserializer = new EventDeserializer();
        deserializer.setCompatibilityMode(EventDeserializer.CompatibilityMode.DATE_AND_TIME_AS_LONG_MICRO);
        client.setEventDeserializer(deserializer);
        client.registerLifecycleListener(new BinaryLogClient.AbstractLifecycleListener() {
            @Override public void onCommunicationFailure(BinaryLogClient client, Exception error) {
                if (!isCut) {
                    fail(error);
                }
            }

            @Override public void onEventDeserializationFailure(BinaryLogClient client, Exception error) {
                fail(error);
            }
        });
        Connector connector = new Connector(meter);
        client.registerEventListener(event -> {
            try {
                connector.take(event.getData());
            } catch (Exception error) {
                fail(error);
            }
        });
        client.connect();
    }

    private static void fail(Exception error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private void take(EventData data) throws IOException {
        if (data instanceof TableMapEventData map) {
            schemas.put(map.getTableId(), map.getDatabase());
        } else if (data instanceof WriteRowsEventData rows && !meter.update && isOurs(rows.getTableId())) {
            for (Serializable[] row : rows.getRows()) {
                meter.row(((Number) row[0]).longValue(), null, whole(row));
            }
            meter.more();
        } else if (data instanceof UpdateRowsEventData rows && meter.update && isOurs(rows.getTableId())) {
            for (Map.Entry<Serializable[], Serializable[]> row : rows.getRows()) {
                meter.row(((Number) row.getValue()[0]).longValue(), whole(row.getKey()), whole(row.getValue()));
            }
            meter.more();
        }
    }

    private boolean isOurs(long table) {
        return meter.word("schema").equals(schemas.get(table));
    }

    private Serializable[] whole(Serializable[] row) throws IOException {
        if (json >= 0 && row[json] != null) {
            row[json] = JsonBinary.parseAsString((byte[]) row[json]);
        }
        return row;
    }
}
