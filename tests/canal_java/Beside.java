import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.common.zookeeper.ZkClientx;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningData;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningListener;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningMonitor;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.parse.inbound.mysql.MysqlEventParser;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import java.util.concurrent.Executors;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** canal's embedded server, driven by lines of JSON: each {"do": …} is answered by {"r": …} or {"error": …}. */
public class Beside {
    private static final ThreadPoolExecutor POOL = (ThreadPoolExecutor) Executors.newFixedThreadPool(1);
    private static CanalServerWithEmbedded server;
    private static String destination;
    private static ServerRunningMonitor turns;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JSONObject answer = new JSONObject();
            try {
                answer.put("r", run(JSON.parseObject(line)));
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            out.println(JSON.toJSONString(answer, JSONWriter.Feature.WriteNulls));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object run(JSONObject call) throws Exception {
        switch (call.getString("do")) {
            case "filter": return filter(call.getJSONArray("cases"));
            case "route": return route(call.getJSONObject("grammar"), call.getJSONArray("messages"));
            case "start": start(call); return null;
            case "stop": stop(); return null;
            case "active": return server.isStart(destination);
            case "subscribe": server.subscribe(client()); return null;
            case "get": return get(call);
            case "ack": server.ack(client(), call.getLongValue("id")); return null;
            default: throw new IllegalArgumentException(call.getString("do"));
        }
    }

    private static ClientIdentity client() {
        return new ClientIdentity(destination, (short) 1001);
    }

    private static JSONArray filter(JSONArray cases) {
        JSONArray answers = new JSONArray();
        for (Object one : cases) {
            JSONArray pair = (JSONArray) one;
            answers.add(new AviaterRegexFilter(pair.getString(0)).filter(pair.getString(1)));
        }
        return answers;
    }

    /** Topic and partition of messages of one row each, put together as canal's producer for Kafka does. */
    private static JSONArray route(JSONObject grammar, JSONArray messages) {
        String topic = grammar.getString("topic"), dynamic = grammar.getString("dynamic_topic");
        String hash = grammar.getString("partition_hash");
        JSONArray answers = new JSONArray();
        for (Object one : messages) {
            FlatMessage message = JSON.parseObject(one.toString(), FlatMessage.class);
            String named = topic;
            if (dynamic != null) {
                CanalEntry.Header header = CanalEntry.Header.newBuilder().setSchemaName(message.getDatabase())
                    .setTableName(message.getTable()).build();
                CanalEntry.Entry entry = CanalEntry.Entry.newBuilder().setHeader(header)
                    .setEntryType(CanalEntry.EntryType.ROWDATA).build();
                Message whole = new Message(1, new ArrayList<>(List.of(entry)));
                named = MQMessageUtils.messageTopics(whole, topic, dynamic).keySet().iterator().next().replace('.', '_');
            }
            Integer count = MQMessageUtils.parseDynamicTopicPartition(named, grammar.getString("topic_partitions"));
            count = count == null ? grammar.getInteger("partitions") : count;
            int partition = 0;
            if (hash != null) {
                boolean database = !Boolean.FALSE.equals(grammar.getBoolean("database_hash"));
                FlatMessage[] parts = MQMessageUtils.messagePartition(message, count, hash, database);
                while (parts[partition] == null) {
                    partition++;
                }
            }
            answers.add(JSONArray.of(named, partition));
        }
        return answers;
    }

    private static void start(JSONObject call) {
        CanalParameter made = new CanalParameter();
        String zookeeper = call.getString("zookeeper");
        made.setZkClusters(zookeeper == null ? new ArrayList<>() : List.of(zookeeper));
        made.setMetaMode(zookeeper == null ? CanalParameter.MetaMode.LOCAL_FILE : CanalParameter.MetaMode.ZOOKEEPER);
        made.setDataDir(call.getString("directory"));
        made.setMetaFileFlushPeriod(100);
        made.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        made.setIndexMode(CanalParameter.IndexMode.MEMORY_META_FAILBACK);
        made.setStorageMode(CanalParameter.StorageMode.MEMORY);
        made.setMemoryStorageRawEntry(false);
        made.setSourcingType(CanalParameter.SourcingType.MYSQL);
        InetSocketAddress address = new InetSocketAddress(call.getString("host"), call.getIntValue("port"));
        made.setGroupDbAddresses(List.of(List.of(new CanalParameter.DataSourcing(CanalParameter.SourcingType.MYSQL, address))));
        made.setDbUsername(call.getString("user"));
        made.setDbPassword(call.getString("password"));
        made.setPositions(List.of(call.getString("position")));
        made.setSlaveId(call.getLongValue("server_id"));
        made.setDetectingEnable(false);
        made.setGtidEnable(call.getBooleanValue("gtid"));
        made.setConnectionCharset("UTF-8");
        destination = call.getString("destination");
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(destination);
        canal.setCanalParameter(made);
        server = new CanalServerWithEmbedded();
        server.setCanalInstanceGenerator(name -> {
            CanalInstanceWithManager instance = new CanalInstanceWithManager(canal, call.getString("filter"));
            if (call.containsKey("fields")) {
                ((MysqlEventParser) instance.getEventParser()).setFieldFilter(call.getString("fields"));
            }
            return instance;
        });
        server.start();
        if (zookeeper == null) {
            server.start(destination);
        } else {
            takeTurns(ZkClientx.getZkClient(zookeeper));
        }
    }

    /** As canal's launcher does: the destination runs while its running node is this process's. */
    private static void takeTurns(ZkClientx zookeeper) {
        turns = new ServerRunningMonitor(new ServerRunningData("127.0.0.1:11111"));
        turns.setDestination(destination);
        turns.setZkClient(zookeeper);
        turns.setDelayTime(1);
        turns.setListener(new ServerRunningListener() {
            public void processActiveEnter() { server.start(destination); }
            public void processActiveExit() { server.stop(destination); }
            public void processStart() { }
            public void processStop() { }
        });
        turns.init();
        turns.start();
    }

    private static void stop() {
        if (turns != null) {
            turns.stop();
            turns = null;
        }
        server.stop();
    }

    private static JSONObject get(JSONObject call) throws Exception {
        Message message = server.getWithoutAck(client(), call.getIntValue("size"), 500L, TimeUnit.MILLISECONDS);
        JSONArray entries = new JSONArray();
        for (CanalEntry.Entry entry : message.getEntries()) {
            entries.add(entry(entry));
        }
        JSONArray flat = new JSONArray();
        if (message.getId() != -1) {
            var data = MQMessageUtils.buildMessageData(message, POOL);
            for (FlatMessage one : MQMessageUtils.messageConverter(data, message.getId())) {
                flat.add(JSON.parseObject(JSON.toJSONString(one, JSONWriter.Feature.WriteNulls)));
            }
        }
        return JSONObject.of("id", message.getId(), "entries", entries, "flat", flat);
    }

    private static JSONObject entry(CanalEntry.Entry entry) throws Exception {
        CanalEntry.Header header = entry.getHeader();
        JSONObject made = JSONObject.of("entryType", entry.getEntryType().toString(), "eventType", header.getEventType().toString(),
            "journal", header.getLogfileName(), "offset", header.getLogfileOffset());
        made.putAll(JSONObject.of("server", header.getServerId(), "time", header.getExecuteTime(), "length", header.getEventLength(),
            "schema", header.getSchemaName(), "table", header.getTableName()));
        JSONObject props = new JSONObject();
        header.getPropsList().forEach(pair -> props.put(pair.getKey(), pair.getValue()));
        made.put("props", props);
        if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
            CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
            JSONArray rows = new JSONArray();
            for (CanalEntry.RowData row : change.getRowDatasList()) {
                rows.add(JSONArray.of(columns(row.getBeforeColumnsList()), columns(row.getAfterColumnsList())));
            }
            made.putAll(JSONObject.of("isDdl", change.getIsDdl(), "sql", change.getSql(), "rows", rows));
        }
        return made;
    }

    private static JSONArray columns(List<CanalEntry.Column> columns) {
        JSONArray made = new JSONArray();
        for (CanalEntry.Column column : columns) {
            String value = column.getIsNull() ? null : column.getValue();
            made.add(JSONArray.of(column.getIndex(), column.getSqlType(), column.getName(), column.getIsKey(), column.getUpdated(),
                column.getIsNull(), value, column.getMysqlType()));
        }
        return made;
    }
}
