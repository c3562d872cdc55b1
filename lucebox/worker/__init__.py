"""Devices of other machines: ggml's RPC for the computing, and a control port for all that it lacks.

`server` is the far end, which `lucebox worker` runs; `client.connect` is ours.
"""
