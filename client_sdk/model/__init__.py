"""The global model at the hospital: it predicts locally, and no query leaves the hospital."""
