# SPDX-License-Identifier: Apache-2.0
# Only other kernel modules call this module, as C.
