"""The methods of others: on pooled rows, by federated averaging, and each hospital alone."""
