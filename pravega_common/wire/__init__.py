"""The Pravega wire protocol: commands, codec, framing, append reassembly. See the README of this folder."""
