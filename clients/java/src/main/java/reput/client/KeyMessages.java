// SPDX-License-Identifier: Apache-2.0
package reput.client;

import java.util.List;

/**
 * A key and all its messages, newest first.
 *
 * @param key the key
 * @param messages its messages; empty for a key of no message
 * @param error null, or why the messages of this key can't be read: it is unknown whether there are any
 */
public record KeyMessages(String key, List<Message> messages, ReputException error) {}
