// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.io.IOException;
import java.net.DatagramSocket;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.security.SecureRandom;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.temporal.ChronoUnit;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Makes unique ids in RocketMQ's form: 32 hexadecimal digits of address, process, time in the month and a counter.
 *
 * <p>Four random bytes replace the hash code of the class loader of RocketMQ's client. Any thread may use it.
 */
final class UniqueIds {
    private static final HexFormat HEX = HexFormat.of().withUpperCase();
    private static final int PREFIX_SIZE_BYTES = 10;

    private final byte[] prefix;
    private final ZoneId zone;
    private final AtomicInteger count = new AtomicInteger();
    private volatile Month month = new Month(0, 0);

    /** A month of local time, in milliseconds since the epoch; the end is exclusive. */
    private record Month(long startMs, long endMs) {}

    /** Takes 4 bytes of address, 2 bytes of process id, 4 random bytes, and the zone of the months. */
    UniqueIds(byte[] prefix, ZoneId zone) {
        this.prefix = prefix.clone();
        this.zone = zone;
    }

    /** Returns a maker of ids for this machine and process. */
    static UniqueIds ofThisProcess() {
        byte[] chance = new byte[8];
        new SecureRandom().nextBytes(chance);
        ByteBuffer prefix = ByteBuffer.allocate(PREFIX_SIZE_BYTES);
        prefix.put(ownAddress(ByteBuffer.wrap(chance).getInt(4))).putShort((short) ProcessHandle.current().pid());
        return new UniqueIds(prefix.put(chance, 0, 4).array(), ZoneId.systemDefault());
    }

    /** Returns a new id, given milliseconds since the epoch. */
    String next(long nowMs) {
        Month current = month;
        if (nowMs < current.startMs || nowMs >= current.endMs) {
            month = current = monthOf(nowMs);
        }
        ByteBuffer id = ByteBuffer.allocate(PREFIX_SIZE_BYTES + Integer.BYTES + Short.BYTES);
        id.put(prefix).putInt((int) (nowMs - current.startMs)).putShort((short) count.getAndIncrement());
        return HEX.formatHex(id.array());
    }

    private Month monthOf(long nowMs) {
        ZonedDateTime first = Instant.ofEpochMilli(nowMs).atZone(zone).withDayOfMonth(1).truncatedTo(ChronoUnit.DAYS);
        return new Month(first.toInstant().toEpochMilli(), first.plusMonths(1).toInstant().toEpochMilli());
    }

    /** Returns the IPv4 address of this machine's default route, or the given address. Sends nothing. */
    private static byte[] ownAddress(int otherwise) {
        try (DatagramSocket probe = new DatagramSocket()) {
            // An address for documentation: only its route is used.
            probe.connect(new InetSocketAddress(InetAddress.getByAddress(new byte[] {(byte) 192, 0, 2, 1}), 9));
            if (probe.getLocalAddress() instanceof Inet4Address address && !address.isAnyLocalAddress()) {
                return address.getAddress();
            }
        } catch (IOException | RuntimeException noRoute) {
            // A random address is sufficient: it only has to differ from other machines.
        }
        return ByteBuffer.allocate(Integer.BYTES).putInt(otherwise).array();
    }
}
