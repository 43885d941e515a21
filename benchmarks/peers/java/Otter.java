import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** alibaba/canal's CanalServerWithEmbedded, every column of every row decoded: Otter NAME JOB. */
public class Otter {
    public static void main(String[] arguments) throws Exception {
        Meter meter = new Meter(arguments[1]);
        String filter = meter.word("schema") + "\\..*";
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName("bench");
        canal.setCanalParameter(parameter(meter));
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(destination -> new CanalInstanceWithManager(canal, filter));
        server.start();
        server.start("bench");
        ClientIdentity client = new ClientIdentity("bench", (short) 1001, filter);
        server.subscribe(client);
        String[] kinds = meter.word("kinds").split(",");
        while (true) {
            Message message = server.getWithoutAck(client, (int) meter.number("batch"));
            if (message.getId() == -1) {
                Thread.sleep(1);
                continue;
            }
            for (CanalEntry.Entry entry : message.getEntries()) {
                take(meter, kinds, entry);
            }
            server.ack(client, message.getId());
            meter.more();
        }
    }

    private static CanalParameter parameter(Meter meter) {
        CanalParameter made = new CanalParameter();
        made.setZkClusters(new ArrayList<>());
        made.setMetaMode(CanalParameter.MetaMode.MEMORY);
        made.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        made.setIndexMode(CanalParameter.IndexMode.MEMORY);
        made.setStorageMode(CanalParameter.StorageMode.MEMORY);
        made.setMemoryStorageBufferSize(16384);
        made.setMemoryStorageRawEntry(false);
        made.setSourcingType(CanalParameter.SourcingType.MYSQL);
        InetSocketAddress address = new InetSocketAddress(meter.word("host"), (int) meter.number("port"));
        made.setGroupDbAddresses(List.of(List.of(new CanalParameter.DataSourcing(CanalParameter.SourcingType.MYSQL, address))));
        made.setDbUsername(meter.word("user"));
        made.setDbPassword(meter.word("password"));
        made.setPositions(List.of(
            "{\"journalName\":\"" + meter.word("journal") + "\",\"position\":" + meter.word("offset") + ",\"timestamp\":0}"));
        made.setSlaveId(meter.number("server_id"));
        made.setDetectingEnable(false);
        made.setReceiveBufferSize(16384);
        made.setSendBufferSize(16384);
        made.setConnectionCharset("UTF-8");
        return made;
    }

    private static void take(Meter meter, String[] kinds, CanalEntry.Entry entry) throws Exception {
        if (entry.getEntryType() != CanalEntry.EntryType.ROWDATA) {
            return;
        }
        CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
        if (change.getIsDdl()) {
            return;
        }
        for (CanalEntry.RowData row : change.getRowDatasList()) {
            Object[] before = meter.update ? values(row.getBeforeColumnsList(), kinds) : null;
            Object[] after = values(row.getAfterColumnsList(), kinds);
            meter.row(Long.parseLong((String) after[0]), before, after);
        }
    }

    /** Bytes come as characters. */
    private static Object[] values(List<CanalEntry.Column> columns, String[] kinds) {
        Object[] made = new Object[columns.size()];
        for (int i = 0; i < made.length; i++) {
            CanalEntry.Column column = columns.get(i);
            if (!column.getIsNull()) {
                made[i] = kinds[i].equals("bytes") ? column.getValue().getBytes(StandardCharsets.ISO_8859_1) : column.getValue();
            }
        }
        return made;
    }
}
