import java.io.IOException;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.CRC32;

/** Counts as benchmarks/meter.py does; the job is a flat JSON object. */
class Meter {
    private static final PrintStream OUT = System.out;
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    final boolean update;
    final boolean check;
    private final Map<String, String> job = new HashMap<>();
    private final String[] kinds;
    private final long want;
    private final double idle = memory("VmRSS");
    private final long begun;
    private final double cpuBefore;
    private final StringBuilder seen;
    private long rows;
    private long ids;
    private long checksum;
    private long halfRows;
    private double first;
    private double halfSeconds;
    private double halfCpu;

    Meter(String file) throws IOException {
        Matcher found = Pattern.compile("\"(\\w+)\": (?:\"([^\"]*)\"|([-0-9.]+|null|true|false))").matcher(Files.readString(Path.of(file)));
        while (found.find()) {
            job.put(found.group(1), found.group(2) != null ? found.group(2) : found.group(3));
        }
        update = word("update").equals("true");
        check = word("check").equals("true");
        kinds = word("kinds").split(",");
        want = number("rows");
        seen = word("latencies").isEmpty() ? null : new StringBuilder();
        begun = System.nanoTime();
        cpuBefore = cpu();
    }

    String word(String name) {
        return job.get(name);
    }

    long number(String name) {
        return Long.parseLong(job.get(name));
    }

    private static double cpu() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }

    private static double memory(String name) {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith(name)) {
                    return Double.parseDouble(line.split("\\s+")[1]) / 1024;
                }
            }
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
        return 0;
    }

    private double seconds() {
        return (System.nanoTime() - begun) / 1e9;
    }

    /** One row; the images are looked at in a run that checks them. */
    void row(long id, Object[] before, Object[] after) {
        rows++;
        ids += id;
        if (seen != null) {
            Instant now = Instant.now();
            seen.append(id).append(' ').append(now.getEpochSecond() * 1_000_000_000L + now.getNano()).append('\n');
        } else if (check) {
            add(after, 1);
            if (before != null) {
                add(before, 1 + kinds.length);
            }
        }
    }

    private void add(Object[] image, int number) {
        for (int i = 0; i < image.length; i++) {
            if (image[i] != null) {
                CRC32 crc = new CRC32();
                crc.update(kinds[i].equals("bytes") ? bytes(image[i]) : text(kinds[i], image[i]).getBytes(StandardCharsets.UTF_8));
                checksum += (number + i) * crc.getValue();
            }
        }
    }

    /** The connector gives VARBINARY as text of one byte a character, and BLOB as bytes. */
    private static byte[] bytes(Object value) {
        return value instanceof byte[] plain ? plain : value.toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    /** That of benchmarks/values.py, of numbers and of SQL's texts alike. */
    private static String text(String kind, Object value) {
        String plain = value instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : value.toString();
        return switch (kind) {
            case "double" -> Long.toString((long) (Double.parseDouble(plain) * 8));
            case "decimal" -> new BigDecimal(plain).setScale(2).toPlainString(); // canal writes 100.00 as 100.0
            case "json" -> plain.replace(" ", "");
            case "datetime", "timestamp" -> value instanceof Long ? plain
                : Long.toString(ChronoUnit.MICROS.between(LocalDateTime.of(1970, 1, 1, 0, 0), LocalDateTime.parse(plain.replace(' ', 'T'))));
            case "date" -> Long.toString(value instanceof Long micros ? micros / 86_400_000_000L : LocalDate.parse(plain).toEpochDay());
            default -> plain;
        };
    }

    /** After each event or batch; ends the process behind the last row. */
    void more() throws IOException {
        if (first == 0 && rows > 0) {
            first = seconds();
        }
        if (halfRows == 0 && rows >= want / 2) {
            halfRows = rows;
            halfSeconds = seconds();
            halfCpu = cpu() - cpuBefore;
        }
        if (rows >= want) {
            end();
        }
    }

    private void end() throws IOException {
        double used = cpu() - cpuBefore;
        double seconds = seconds();
        if (seen != null) {
            Files.writeString(Path.of(word("latencies")), seen);
        }
        OUT.println(String.format(Locale.ROOT, "RESULT {\"rows\": %d, \"ids\": %d, \"checksum\": %s, \"seconds\": %f, \"cpu_seconds\": %f,"
            + " \"half_rows\": %d, \"half_seconds\": %f, \"half_cpu\": %f, \"first_seconds\": %f, \"peak_mib\": %f, \"idle_mib\": %f}",
            rows, ids, Long.toUnsignedString(checksum), seconds, used, halfRows, halfSeconds, halfCpu, first, memory("VmHWM"), idle));
        OUT.flush();
        Runtime.getRuntime().halt(0);
    }
}
