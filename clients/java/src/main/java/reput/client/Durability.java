// SPDX-License-Identifier: Apache-2.0
package reput.client;

/** The durability of a stored message. Each level covers the faults of the levels before it. */
public enum Durability {
    /** The store's own level. In a result: a level that this client does not know. */
    DEFAULT,
    /** In the page cache: survives a crash of the service, not of the machine. */
    MEMORY,
    /** Synced to the disk: survives a power cut. */
    LOCAL_DISK,
    /** Synced to the disks of all replicas that are in sync: survives the loss of a machine. */
    REPLICATED;

    private static final Durability[] BY_NUMBER = values();

    /** Returns the level of a number of the API; the numbers are the same. */
    static Durability of(int number) {
        return number > 0 && number < BY_NUMBER.length ? BY_NUMBER[number] : DEFAULT;
    }
}
