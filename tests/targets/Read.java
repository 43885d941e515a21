import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** RocketMQ's own client: name server, topic, tags, and how many messages; prints queue, id, keys, tags, group and body of each. */
public class Read {
    public static void main(String[] words) throws Exception {
        var account = new AclClientRPCHook(new SessionCredentials("canal-writer", "12345678"));
        var consumer = new DefaultLitePullConsumer("read-" + words[1], account);
        consumer.setNamesrvAddr(words[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(words[1], words[2]);
        consumer.start();
        for (int left = Integer.parseInt(words[3]); left > 0; ) {
            for (MessageExt one : consumer.poll(1000)) {
                System.out.println(String.join("\t", "" + one.getQueueId(), one.getMsgId(), one.getKeys(), one.getTags(),
                    one.getUserProperty("id"), one.getProperty("__SHARDINGKEY"), new String(one.getBody(), StandardCharsets.UTF_8)));
                left--;
            }
        }
        consumer.shutdown();
        System.exit(0);
    }
}
