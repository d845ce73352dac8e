# SPDX-License-Identifier: Apache-2.0
"""The door: the native APIs of the store's services on the gateway's port, passed on as bytes.

door      Door: which service gets a call.
shards    ShardDoors: a door for each shard.
opening   The door from the settings: its channels, and the health of the services behind it.
"""
