"""`make demo`: a coordinator and five hospitals as processes on this machine."""
