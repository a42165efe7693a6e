"""`python -m client_sdk` is `veilgp`."""

from client_sdk.terminal.command import main

if __name__ == "__main__":
    main()
