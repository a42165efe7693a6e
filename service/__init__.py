"""The coordinator: it runs sessions and only ever sees sums."""
