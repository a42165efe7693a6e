"""The test vectors of docs/protocol.md, made with our own code from fixed seeds.

`python -m tests.vectors` writes openapi/vectors.json. Everything in it is deterministic but what is
sealed by HPKE, which draws its own randomness, and the signatures on that: `VOLATILE` names these.
"""
