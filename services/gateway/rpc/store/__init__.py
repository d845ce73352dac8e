# SPDX-License-Identifier: Apache-2.0
"""The services behind the gateway over gRPC.

ports             Log, Deliveries: the calls to the store, or to the shards.
log_client        LogClient: the CommitLog of a store.
delivery_client   DeliveryClient: the Delivery of a store.
shards            the same for several shards.
opening           the store, or the shards, from the settings.
"""
