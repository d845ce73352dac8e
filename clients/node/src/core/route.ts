// SPDX-License-Identifier: Apache-2.0
// Route: the current address of a service. No I/O.

import type { ReputError } from "./errors.js";

/** Reasons after which the next address of the list may work. */
const ELSEWHERE: readonly string[] = ["NOT_LEADER", "STOPPING", "LEASE_OVER", "DEPENDENCY_UNAVAILABLE"];

/** The route to a service. `target` is the address of its next call. */
export class Route {
  target: string;
  readonly #targets: readonly string[];

  /** `targets`: the addresses, in the order of the list. */
  constructor(targets: readonly [string, ...string[]]) {
    this.#targets = targets;
    this.target = targets[0];
  }

  /** Changes the target if the error of a call to `target` asks for it. */
  onFailure(target: string, error: ReputError): void {
    if (target !== this.target) return; // another call has changed it already
    const { code, reason, metadata } = error;
    if (reason === "NOT_LEADER" && metadata.leader) {
      this.target = metadata.leader;
    } else if (
      ELSEWHERE.includes(reason) ||
      (["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(code) && !reason)
    ) {
      // After an address that is not in the list, at -1, the first address is used.
      this.target = this.#targets[(this.#targets.indexOf(target) + 1) % this.#targets.length] as string;
    }
  }
}
