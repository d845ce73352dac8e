// SPDX-License-Identifier: Apache-2.0
package reput.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.stream.JsonWriter;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One store of RocketMQ under orders. */
final class StoreTool {
    private static final int SETTLE_MS_MAX = 60_000;
    private static final int MAGIC_POSITION = 4;
    private static final int BLANK_MAGIC = 0xcbd43194; // CommitLog.BLANK_MAGIC_CODE, which is not public
    private static final String GROUP = "interop";
    private static final int EXTENSION_SIZE_BYTES = 1 << 12;

    private final Release release;
    private final JsonWriter out;
    private DefaultMessageStore store;
    private String directory;

    private StoreTool(Release release, JsonWriter out) {
        this.release = release;
        this.out = out;
    }

    static void run(Release release) throws Exception {
        Orders.serve(out -> new StoreTool(release, out)::obey);
    }

    private void obey(JsonObject order) throws Exception {
        switch (order.get("do").getAsString()) {
            case "open" -> open(order);
            case "put" -> put(order.getAsJsonArray("messages"));
            case "put_batch" -> putBatch(order.getAsJsonArray("messages"));
            case "put_inner_batch" -> putInnerBatch(order.getAsJsonArray("messages"), order.getAsJsonObject("properties"));
            case "make_topic" -> release.makeTopic(
                Path.of(directory), order.get("name").getAsString(), Messages.texts(order.getAsJsonObject("attributes")));
            case "delete_topic" -> deleteTopic(order.get("name").getAsString());
            case "settle" -> settle();
            case "read" -> read();
            case "walk" -> walk();
            case "keys" -> keys(order.getAsJsonArray("keys"));
            case "tags" -> tags();
            case "timer" -> out.name("count").value(release.timerCount());
            case "times" -> times(order.getAsJsonArray("times"));
            case "checkpoint" -> checkpoint();
            case "read_config" -> out.name("config").jsonValue(Messages.readConfig(release, configDirectory()).toString());
            case "write_config" -> Messages.writeConfig(release, configDirectory(), order);
            case "stop" -> stop();
            case "halt_after" -> haltAfter(order.get("delay_ms").getAsLong());
            default -> throw new IllegalArgumentException("" + order);
        }
    }

    private Path configDirectory() {
        return Path.of(directory, "config");
    }

    /** What a store on a directory goes by, with the sizes of its files. */
    static MessageStoreConfig config(JsonObject settings) {
        String directory = settings.get("directory").getAsString();
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        String logDirectories = settings.get("log_dirs").getAsString();
        config.setStorePathCommitLog(logDirectories.isEmpty() ? directory + "/commitlog" : logDirectories);
        config.setMappedFileSizeCommitLog(settings.get("segment_size_bytes").getAsInt());
        config.setMappedFileSizeConsumeQueue(settings.get("queue_file_size_bytes").getAsInt());
        config.setMaxHashSlotNum(settings.get("index_slot_count").getAsInt());
        config.setMaxIndexNum(settings.get("index_entry_capacity").getAsInt());
        config.setMessageIndexSafe(settings.get("index_safe").getAsBoolean());
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setBrokerRole(BrokerRole.ASYNC_MASTER);
        config.setHaListenPort(0);
        config.setDuplicationEnable(false);
        config.setEnableDLegerCommitLog(false);
        config.setMaxTransferCountOnMessageInMemory(1000);
        config.setMaxTransferBytesOnMessageInMemory(4 << 20);
        // Nothing may expire while a test runs.
        config.setCleanFileForciblyEnable(false);
        config.setFileReservedTime(100_000);
        config.setDiskMaxUsedSpaceRatio(99);
        return config;
    }

    private void open(JsonObject settings) throws Exception {
        directory = settings.get("directory").getAsString();
        MessageStoreConfig config = config(settings);
        Set<String> features = new HashSet<>();
        settings.getAsJsonArray("features").forEach(feature -> features.add(feature.getAsString()));
        config.setEnableLmq(features.contains("light"));
        config.setEnableMultiDispatch(features.contains("light"));
        config.setEnableConsumeQueueExt(features.contains("ext"));
        config.setMappedFileSizeConsumeQueueExt(EXTENSION_SIZE_BYTES);
        release.configure(config, settings);
        boolean isUnclean = new File(directory, "abort").exists();
        store = release.make(config);
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ can't load the store");
        }
        store.start();
        if (features.contains("timer")) {
            release.startTimer(store);
        }
        if (!settings.get("delivers").getAsBoolean()) {
            release.stopDelivery(store); // it would begin a second after the start
        }
        settle();
        out.name("is_unclean").value(isUnclean);
    }

    private void settle() throws Exception {
        long end = System.currentTimeMillis() + SETTLE_MS_MAX;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(store.dispatchBehindBytes() + " bytes are not dispatched");
            }
            Thread.sleep(5);
        }
        // The last records are counted as dispatched before they are.
        Thread.sleep(100);
        out.name("min_physical_offset").value(store.getMinPhyOffset());
        out.name("max_physical_offset").value(store.getMaxPhyOffset());
    }

    /** Remove the queues of a topic with their counters, as a broker that deletes the topic has it done. */
    private void deleteTopic(String name) {
        Set<String> others = new HashSet<>(store.getConsumeQueueTable().keySet());
        others.remove(name);
        store.cleanUnusedTopic(others);
    }

    private void put(JsonArray messages) throws Exception {
        out.name("placed").beginArray();
        for (JsonElement element : messages) {
            MessageExt message = release.newMessage();
            Messages.fill(message, element.getAsJsonObject());
            AppendMessageResult result = appended(release.put(store, message));
            place(result.getWroteOffset(), result.getLogicsOffset(), result.getStoreTimestamp());
        }
        out.endArray();
    }

    private void putBatch(JsonArray messages) throws Exception {
        AppendMessageResult result = appended(store.putMessages(Messages.batch(messages)));
        String[] ids = result.getMsgId().split(",");
        out.name("placed").beginArray();
        for (int i = 0; i < ids.length; i++) {
            long physicalOffset = MessageDecoder.decodeMessageId(ids[i]).getOffset();
            place(physicalOffset, result.getLogicsOffset() + i, result.getStoreTimestamp());
        }
        out.endArray();
    }

    /** One record with all messages in it, which has these properties. */
    private void putInnerBatch(JsonArray messages, JsonObject properties) throws Exception {
        MessageExtBatch batch = Messages.batch(messages);
        MessageAccessor.setProperties(batch, Messages.texts(properties));
        AppendMessageResult result = appended(release.putInnerBatch(store, batch));
        out.name("placed").beginArray();
        place(result.getWroteOffset(), result.getLogicsOffset(), result.getStoreTimestamp());
        out.endArray();
    }

    private void place(long physicalOffset, long queueOffset, long storeTimeMs) throws IOException {
        out.beginArray().value(physicalOffset).value(queueOffset).value(storeTimeMs).endArray();
    }

    private static AppendMessageResult appended(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("" + result);
        }
        return result.getAppendMessageResult();
    }

    private void read() throws Exception {
        out.name("queues").beginArray();
        for (Map.Entry<String, ? extends Map<Integer, ?>> topic : new TreeMap<>(store.getConsumeQueueTable()).entrySet()) {
            for (int queueId : new TreeMap<>(topic.getValue()).keySet()) {
                readQueue(topic.getKey(), queueId);
            }
        }
        out.endArray();
    }

    private void readQueue(String topic, int queueId) throws Exception {
        long start = store.getMinOffsetInQueue(topic, queueId);
        long end = release.queueEnd(store, topic, queueId);
        out.beginObject().name("topic").value(topic).name("queue_id").value(queueId);
        out.name("min_queue_offset").value(start).name("max_queue_offset").value(end);
        out.name("messages").beginArray();
        for (long next = start; next < end; ) {
            GetMessageResult result = store.getMessage(GROUP, topic, queueId, next, 1000, null);
            if (result.getStatus() != GetMessageStatus.FOUND) {
                throw new IllegalStateException(topic + " " + queueId + " " + next + ": " + result);
            }
            for (ByteBuffer record : result.getMessageBufferList()) {
                Messages.write(out, record);
            }
            next = result.getNextBeginOffset();
            result.release();
        }
        out.endArray().endObject();
    }

    /** All records in the order of the log. */
    private void walk() throws IOException {
        out.name("messages").beginArray();
        long end = store.getMaxPhyOffset();
        for (long next = Math.max(0, store.getMinPhyOffset()); next < end; ) {
            SelectMappedBufferResult result = store.selectOneMessageByOffset(next);
            ByteBuffer record = result.getByteBuffer();
            if (record.getInt(MAGIC_POSITION) != BLANK_MAGIC) {
                Messages.write(out, record.slice());
            }
            next += result.getSize();
            result.release();
        }
        out.endArray();
    }

    private void keys(JsonArray questions) throws IOException {
        out.name("found").beginArray();
        for (JsonElement element : questions) {
            JsonObject question = element.getAsJsonObject();
            QueryMessageResult result = store.queryMessage(
                question.get("topic").getAsString(), question.get("key").getAsString(), question.get("count").getAsInt(),
                question.get("start_time_ms").getAsLong(), question.get("last_time_ms").getAsLong());
            out.beginArray();
            for (ByteBuffer record : result.getMessageBufferList()) {
                out.value(record.getLong(record.position() + MessageDecoder.PHY_POS_POSITION));
            }
            out.endArray();
            result.release();
        }
        out.endArray();
    }

    private void times(JsonArray questions) throws IOException {
        out.name("found").beginArray();
        for (JsonElement element : questions) {
            JsonObject question = element.getAsJsonObject();
            out.beginArray();
            for (long queueOffset : release.queueOffsets(
                store, question.get("topic").getAsString(), question.get("queue_id").getAsInt(), question.get("time_ms").getAsLong())) {
                out.value(queueOffset);
            }
            out.endArray();
        }
        out.endArray();
    }

    /** The tags codes of each queue as filters see them, with those that extensions hold. */
    private void tags() throws Exception {
        out.name("queues").beginArray();
        for (Map.Entry<String, ? extends Map<Integer, ?>> topic : new TreeMap<>(store.getConsumeQueueTable()).entrySet()) {
            for (int queueId : new TreeMap<>(topic.getValue()).keySet()) {
                out.beginObject().name("topic").value(topic.getKey()).name("queue_id").value(queueId);
                tagsOf(topic.getKey(), queueId);
                out.endObject();
            }
        }
        out.endArray();
    }

    private void tagsOf(String topic, int queueId) throws Exception {
        List<Long> codes = new ArrayList<>();
        int[] extended = {0};
        MessageFilter filter = new MessageFilter() {
            @Override
            public boolean isMatchedByConsumeQueue(Long code, ConsumeQueueExt.CqExtUnit unit) {
                codes.add(code);
                extended[0] += unit == null ? 0 : 1;
                return false;
            }

            @Override
            public boolean isMatchedByCommitLog(ByteBuffer record, Map<String, String> properties) {
                return true;
            }
        };
        for (long next = store.getMinOffsetInQueue(topic, queueId); next < release.queueEnd(store, topic, queueId); ) {
            next = store.getMessage(GROUP, topic, queueId, next, 1000, filter).getNextBeginOffset();
        }
        out.name("codes").beginArray();
        for (long code : codes) {
            out.value(code);
        }
        out.endArray().name("extended_count").value(extended[0]);
    }

    private void checkpoint() throws IOException {
        StoreCheckpoint checkpoint = store.getStoreCheckpoint();
        out.name("log_time_ms").value(checkpoint.getPhysicMsgTimestamp());
        out.name("queue_time_ms").value(checkpoint.getLogicsMsgTimestamp());
        out.name("index_time_ms").value(checkpoint.getIndexMsgTimestamp());
    }

    private void stop() throws IOException {
        release.stop();
        store.shutdown();
        out.name("is_unclean").value(new File(directory, "abort").exists());
    }

    private static void haltAfter(long delayMs) {
        Thread thread = new Thread(() -> {
            LockSupport.parkNanos(delayMs * 1_000_000);
            Runtime.getRuntime().halt(137);
        });
        thread.start();
    }
}
