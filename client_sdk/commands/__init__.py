"""The shell command's groups, one file for each; imported only when they run."""
