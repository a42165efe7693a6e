"""The web page for admins: its data, plots and templates."""
