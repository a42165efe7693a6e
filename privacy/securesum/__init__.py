"""The secure sum: the coordinator learns a sum of integer vectors, and nothing else about any.

`client.Client` is a member's half and `coordinator.Coordinator` the coordinator's; messages.py is
what they say to each other. protocol.md is the specification, and says why.
"""
