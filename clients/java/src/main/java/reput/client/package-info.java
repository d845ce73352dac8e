// SPDX-License-Identifier: Apache-2.0
/** The Java client of Reput, a message store. Begin at {@link reput.client.Client}. */
package reput.client;
