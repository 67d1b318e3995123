import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Random;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.DocumentContext;
import net.openhft.chronicle.wire.WireIn;

/**
 * A transaction buffer of one Chronicle queue: everything is appended as it comes; at a commit a tailer reads from where the transaction
 * began to its commit, and takes the records that have its id. The queue itself forces nothing to disk; with a number for
 * "synced" its files are forced each time that so many events were appended.
 *
 * Each task prints one line of JSON. Usage: Scheme rates|probes|memory bytes|wire folder size synced events open extra
 */
public final class Scheme {
    private static final int BEGIN = 0;
    private static final int CHANGE = 1;
    private static final int COMMIT = 2;
    private static final int POOL = 200_000;
    private static final int WARM = 500_000;
    private static final int PROBE_EVENTS = 10;
    private static final byte[] NOTHING = new byte[0];

    /** How a record is laid out in a document. */
    private interface Form {
        void write(DocumentContext document, long xid, int type, byte[] payload);

        /** The bytes of the record, if it is a change of this transaction; else 0. */
        int read(DocumentContext document, long xid, byte[] into);
    }

    /** The least that works: numbers and bytes one after another. */
    private static final class AsBytes implements Form {
        @Override
        public void write(DocumentContext document, long xid, int type, byte[] payload) {
            Bytes<?> out = document.wire().bytes();
            out.writeLong(xid);
            out.writeInt(type);
            out.write(payload);
        }

        @Override
        public int read(DocumentContext document, long xid, byte[] into) {
            Bytes<?> in = document.wire().bytes();
            return in.readLong() == xid && in.readInt() == CHANGE ? in.read(into) : 0;
        }
    }

    /** Named fields with text, which tell what they are. */
    private static final class AsWire implements Form {
        @Override
        public void write(DocumentContext document, long xid, int type, byte[] payload) {
            document.wire()
                    .write("xid").text(Long.toHexString(xid))
                    .write("type").int32(type)
                    .write("sql").text(new String(payload, StandardCharsets.ISO_8859_1));
        }

        @Override
        public int read(DocumentContext document, long xid, byte[] into) {
            WireIn in = document.wire();
            boolean own = Long.toHexString(xid).equals(in.read("xid").text()) && in.read("type").int32() == CHANGE;
            return own ? in.read("sql").text().length() : 0;
        }
    }

    private final Form form;
    private final byte[][] pool;
    private final byte[] into;
    private final int synced;

    private Scheme(Form form, int size, int synced) {
        this.form = form;
        this.synced = synced;
        this.pool = texts(size);
        this.into = new byte[size];
    }

    public static void main(String[] given) throws IOException {
        Form form = given[1].equals("wire") ? new AsWire() : new AsBytes();
        Scheme scheme = new Scheme(form, Integer.parseInt(given[3]), Integer.parseInt(given[4]));
        Path folder = Path.of(given[2]);
        int events = Integer.parseInt(given[5]);
        int open = Integer.parseInt(given[6]);
        int extra = Integer.parseInt(given[7]);
        switch (given[0]) {
            case "rates" -> scheme.rates(folder, events, open, extra);
            case "probes" -> scheme.probes(folder, events, open, extra);
            case "memory" -> scheme.memory(folder, events);
            default -> throw new IllegalArgumentException(given[0]);
        }
    }

    /** Append events of many open transactions, then replay some of these; and one transaction that is alone. */
    private void rates(Path folder, int events, int open, int replayed) throws IOException {
        warm(folder.resolve("warm"), open);
        double appended;
        double cpu;
        double among = 0;
        long count = 0;
        try (ChronicleQueue queue = queue(folder.resolve("mixed")); ExcerptAppender appender = queue.createAppender()) {
            long[] starts = begin(appender, open);
            awaken(folder.resolve("asleep"), 3L * events * pool[0].length);
            double before = cpuSeconds();
            long began = System.nanoTime();
            append(appender, folder.resolve("mixed"), events, open);
            appended = seconds(began);
            cpu = cpuSeconds() - before;
            for (int i = 0; i < replayed; i++) {
                int xid = i * (open / replayed);
                long end = write(appender, xid, COMMIT, NOTHING);
                began = System.nanoTime();
                count += scan(queue, starts[xid], end, xid);
                among += seconds(began);
            }
        }
        double alone;
        long single;
        try (ChronicleQueue queue = queue(folder.resolve("alone")); ExcerptAppender appender = queue.createAppender()) {
            long start = begin(appender, 1)[0];
            append(appender, folder.resolve("alone"), events, 1);
            long end = write(appender, 0, COMMIT, NOTHING);
            long began = System.nanoTime();
            single = scan(queue, start, end, 0);
            alone = seconds(began);
        }
        System.out.printf("{\"appended\": %d, \"append_s\": %.6f, \"append_cpu_s\": %.6f, ", events, appended, cpu);
        System.out.printf("\"replayed\": %d, \"replay_s\": %.6f, \"alone\": %d, \"alone_s\": %.6f}%n", count, among, single, alone);
    }

    /** Transactions of a few events: some alone, each in a queue of its own; others open across the foreign events. */
    private void probes(Path folder, int foreign, int open, int probes) throws IOException {
        warm(folder.resolve("warm"), open);
        double[] alone = new double[probes];
        double[] contended = new double[probes];
        for (int i = 0; i < probes; i++) {
            try (ChronicleQueue queue = queue(folder.resolve("alone" + i)); ExcerptAppender appender = queue.createAppender()) {
                long start = begin(appender, 1)[0];
                append(appender, folder.resolve("alone" + i), PROBE_EVENTS, 1);
                alone[i] = replay(queue, start, write(appender, 0, COMMIT, NOTHING), 0);
            }
        }
        try (ChronicleQueue queue = queue(folder.resolve("mixed")); ExcerptAppender appender = queue.createAppender()) {
            long[] starts = begin(appender, open + probes);
            for (int part = 0; part < PROBE_EVENTS; part++) {
                for (int i = 0; i < probes; i++) {
                    write(appender, open + i, CHANGE, pool[i]);
                }
                append(appender, folder.resolve("mixed"), foreign / PROBE_EVENTS, open);
            }
            for (int i = 0; i < probes; i++) {
                contended[i] = replay(queue, starts[open + i], write(appender, open + i, COMMIT, NOTHING), open + i);
            }
        }
        System.out.printf("{\"alone_s\": %s, \"contended_s\": %s}%n", Arrays.toString(alone), Arrays.toString(contended));
    }

    /** One open transaction; what counts is the memory of this process. */
    private void memory(Path folder, int events) throws IOException {
        try (ChronicleQueue queue = queue(folder.resolve("mixed")); ExcerptAppender appender = queue.createAppender()) {
            begin(appender, 1);
            append(appender, folder.resolve("mixed"), events, 1);
            System.out.printf("{\"events\": %d, \"rss_peak_kb\": %d}%n", events, residentPeak());
        }
    }

    /** As in measure.py: memory that a virtual machine has to fetch from its host first is on nobody's clock. */
    private static void awaken(Path file, long bytes) throws IOException {
        ByteBuffer block = ByteBuffer.allocate(4 << 20);
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            for (long written = 0; written < bytes; written += block.capacity()) {
                channel.write(block.clear());
            }
        }
        Files.delete(file);
    }

    private void warm(Path folder, int open) throws IOException {
        try (ChronicleQueue queue = queue(folder); ExcerptAppender appender = queue.createAppender()) {
            long[] starts = begin(appender, open);
            append(appender, folder, WARM, open);
            long end = write(appender, 0, COMMIT, NOTHING);
            for (int turn = 0; turn < 5; turn++) {
                scan(queue, starts[0], end, 0);
            }
        }
    }

    private long[] begin(ExcerptAppender appender, int open) {
        long[] starts = new long[open];
        for (int xid = 0; xid < open; xid++) {
            starts[xid] = write(appender, xid, BEGIN, NOTHING);
        }
        return starts;
    }

    private void append(ExcerptAppender appender, Path folder, int events, int open) throws IOException {
        Random random = new Random(7);
        for (int i = 1; i <= events; i++) {
            write(appender, random.nextInt(open), CHANGE, pool[i % POOL]);
            if (synced > 0 && (i % synced == 0 || i == events)) {
                force(folder);
            }
        }
    }

    private static void force(Path folder) throws IOException {
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.cq4")) {
            for (Path file : files) {
                try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                    channel.force(true);
                }
            }
        }
    }

    private long write(ExcerptAppender appender, long xid, int type, byte[] payload) {
        try (DocumentContext document = appender.writingDocument()) {
            form.write(document, xid, type, payload);
        }
        return appender.lastIndexAppended();
    }

    private double replay(ChronicleQueue queue, long start, long end, long xid) {
        long began = System.nanoTime();
        long count = scan(queue, start, end, xid);
        double seconds = seconds(began);
        if (count != PROBE_EVENTS) {
            throw new IllegalStateException(count + " events came back");
        }
        return seconds;
    }

    private long scan(ChronicleQueue queue, long start, long end, long xid) {
        long count = 0;
        try (ExcerptTailer tailer = queue.createTailer()) {
            tailer.moveToIndex(start);
            while (true) {
                try (DocumentContext document = tailer.readingDocument()) {
                    if (!document.isPresent() || document.index() >= end) {
                        return count;
                    }
                    if (form.read(document, xid, into) > 0) {
                        count++;
                    }
                }
            }
        }
    }

    private static ChronicleQueue queue(Path folder) {
        return SingleChronicleQueueBuilder.single(folder.toString()).build();
    }

    private static byte[][] texts(int size) {
        Random random = new Random(1);
        byte[][] texts = new byte[POOL][size];
        for (byte[] text : texts) {
            for (int i = 0; i < size; i++) {
                text[i] = (byte) (' ' + random.nextInt(90));
            }
        }
        return texts;
    }

    private static double seconds(long began) {
        return (System.nanoTime() - began) / 1e9;
    }

    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    private static long residentPeak() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", ""));
            }
        }
        return 0;
    }
}
