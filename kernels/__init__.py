"""The mathematics: random kernels, the Bayesian linear layer, evidence, metrics, schemas.

Pure functions of tensors and the plain data that hospitals and the coordinator both speak of.
Nothing here knows of a network, a file or a database.
"""
