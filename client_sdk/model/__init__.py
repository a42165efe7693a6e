"""The global model at home: it predicts here, and no query leaves the building."""
