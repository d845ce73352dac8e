// SPDX-License-Identifier: Apache-2.0
// Which of a service's addresses calls go to. No I/O.

import type { ReputError } from "./errors.js";

/** Reasons after which the next address of the list may do better. */
const ELSEWHERE: readonly string[] = ["NOT_LEADER", "STOPPING", "LEASE_OVER", "DEPENDENCY_UNAVAILABLE"];

/** The way to one service. `target` is where its next call goes. */
export class Route {
  target: string;
  readonly #targets: readonly string[];

  /** `targets`: one address or more, the first one first. */
  constructor(targets: readonly [string, ...string[]]) {
    this.#targets = targets;
    this.target = targets[0];
  }

  /** Takes note of the error of a call that went to `target`. */
  onFailure(target: string, error: ReputError): void {
    if (target !== this.target) return; // another call has found out before
    const { code, reason, metadata } = error;
    if (reason === "NOT_LEADER" && metadata.leader) {
      this.target = metadata.leader;
    } else if (
      ELSEWHERE.includes(reason) ||
      (["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(code) && !reason)
    ) {
      // Behind an address that is not in the list, at -1, comes the first one.
      this.target = this.#targets[(this.#targets.indexOf(target) + 1) % this.#targets.length] as string;
    }
  }
}
