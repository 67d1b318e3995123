import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.FileReader;
import java.io.Reader;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's embedded engine reading a snapshot, to a consumer that only counts. Says WARM and READY when it streams (the first row change
 * arrived), or with "initial" when its task has started; DONE n when n rows of the snapshot have arrived. With "latency" it also
 * says SEEN id for each row inserted into the table "bench" while it streams, and stays.
 *
 * Usage: SnapshotConsumer properties-file rows incremental|initial|latency
 */
public final class SnapshotConsumer implements DebeziumEngine.ChangeConsumer<RecordChangeEvent<SourceRecord>> {
    private final long expected;
    private final String mode;
    private boolean ready;
    private boolean done;
    private long rows;

    private SnapshotConsumer(long expected, String mode) {
        this.expected = expected;
        this.mode = mode;
        this.ready = mode.equals("initial");
    }

    @Override
    public void handleBatch(
            List<RecordChangeEvent<SourceRecord>> records,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer)
            throws InterruptedException {
        for (RecordChangeEvent<SourceRecord> record : records) {
            if (record.record().value() instanceof Struct struct && struct.schema().field("op") != null) {
                take(struct);
            }
        }
        committer.markProcessed(records.get(records.size() - 1));
        committer.markBatchFinished();
        if (rows >= expected && !done) {
            done = true;
            say("DONE " + rows);
            if (!mode.equals("latency")) {
                Runtime.getRuntime().halt(0);
            }
        }
    }

    private void take(Struct value) {
        String op = value.getString("op");
        if (op.equals("r")) {
            rows++;
            return;
        }
        if (!ready && !op.equals("m")) {
            ready = true;
            say("WARM\nREADY");
        }
        if (mode.equals("latency") && op.equals("c") && "bench".equals(value.getStruct("source").getString("table"))) {
            say("SEEN " + value.getStruct("after").get("id"));
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        String mode = arguments[2];
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(properties)
                        .notifying(new SnapshotConsumer(Long.parseLong(arguments[1]), mode))
                        .using(new DebeziumEngine.ConnectorCallback() {
                            @Override
                            public void taskStarted() {
                                if (mode.equals("initial")) {
                                    say("WARM\nREADY");
                                }
                            }
                        })
                        .using((success, message, error) -> {
                            System.err.println("the engine ended: " + message);
                            if (error != null) {
                                error.printStackTrace();
                            }
                            Runtime.getRuntime().halt(success ? 0 : 1);
                        })
                        .build();
        engine.run();
    }
}
