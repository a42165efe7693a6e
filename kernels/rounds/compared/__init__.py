"""Other methods from the papers, for comparison."""
