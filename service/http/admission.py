"""Who may stay connected when there are too many (docs/threats.md A29); no I/O.

A connection is *known* from the moment a request on it has been authenticated until its next
request begins; otherwise it is a *stranger*. Only strangers are counted against limits of their
own, so the rest of the connections is kept for members, admins and callers. Nobody is refused for
being new: when strangers are too many, the oldest one is closed, of the address that has most of
them. A member that connects needs a moment to authenticate; silent connections, however many, make
way for it.
"""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Protocol


class Connection(Protocol):
    """One connection."""

    def cut_off(self) -> None:
        """Close it at once, whatever it is doing."""
        ...


class Admission:
    """The connections of one server.

    most: all connections. most_strangers, most_per_address: strangers, of all addresses and of one.
    """

    def __init__(self, *, most: int, most_strangers: int, most_per_address: int) -> None:
        self._most = most
        self._most_strangers = most_strangers
        self._most_per_address = most_per_address
        self._addresses: dict[Connection, str] = {}
        # Each address's strangers, the oldest first; the values mean nothing.
        self._strangers: dict[str, dict[Connection, None]] = {}
        self._count = 0

    def enter(self, connection: Connection, address: str) -> None:
        """Add a stranger, for whom another may have to leave."""
        self._addresses[connection] = origin(address)
        self.doubt(connection)

    def doubt(self, connection: Connection) -> None:
        """Make a connection the youngest stranger: it begins a request."""
        address = self._addresses.get(connection)
        if address is None:
            return
        self.know(connection)
        own = self._strangers.setdefault(address, {})
        own[connection] = None
        self._count += 1
        if len(own) > self._most_per_address:
            self._cut_oldest(own)
        elif self._count > self._most_strangers or len(self._addresses) > self._most:
            self._cut_oldest(max(self._strangers.values(), key=len))

    def know(self, connection: Connection) -> None:
        """Make a connection known: its request has been authenticated."""
        address = self._addresses.get(connection, "")
        own = self._strangers.get(address, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._strangers[address]

    def leave(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self.know(connection)
        self._addresses.pop(connection, None)

    def _cut_oldest(self, strangers: dict[Connection, None]) -> None:
        oldest = next(iter(strangers))
        self.leave(oldest)
        oldest.cut_off()


def origin(address: str) -> str:
    """Return what is counted as one address; a subscriber has a whole IPv6 network of 64 bits.

    >>> origin("2001:db8::1") == origin("2001:db8::2")
    True
    >>> origin("::ffff:192.0.2.1"), origin("192.0.2.1"), origin("")
    ('192.0.2.1', '192.0.2.1', '')
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((found.packed, 64), strict=False))
