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
 * Debezium's embedded engine at its fastest: records stay Connect objects (nothing is serialised), the consumer counts row changes
 * and marks one record per batch. Prints "DONE n" when it has seen n of them and goes.
 *
 * Usage: NoopConsumer properties-file events
 */
public final class NoopConsumer implements DebeziumEngine.ChangeConsumer<RecordChangeEvent<SourceRecord>> {
    private final long expected;
    private long seen;

    private NoopConsumer(long expected) {
        this.expected = expected;
    }

    @Override
    public void handleBatch(
            List<RecordChangeEvent<SourceRecord>> records,
            DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer)
            throws InterruptedException {
        for (RecordChangeEvent<SourceRecord> record : records) {
            Object value = record.record().value();
            if (value instanceof Struct struct && isRowChange(struct)) {
                seen++;
            }
        }
        committer.markProcessed(records.get(records.size() - 1));
        committer.markBatchFinished();
        if (seen >= expected) {
            System.out.println("DONE " + seen);
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
    }

    /** A logical message ("m") has the envelope of a change too. */
    private static boolean isRowChange(Struct value) {
        return value.schema().field("op") != null && !"m".equals(value.getString("op"));
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                        .using(properties)
                        .notifying(new NoopConsumer(Long.parseLong(arguments[1])))
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
