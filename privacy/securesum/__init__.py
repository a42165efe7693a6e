"""The secure sum: the coordinator learns the sum of integer vectors, and nothing else about them.

`client.Client` is the member's side, `coordinator.Coordinator` the coordinator's, and messages.py
holds the messages between them. docs/protocol.md is the specification and gives the reasons.
"""
