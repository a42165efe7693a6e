"""The shell commands, a file for each family; `client_sdk.command` puts them together."""
