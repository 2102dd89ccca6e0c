"""Which requests the world takes: where each is sent, and what it has to say.

Guarantees: client and server read the same table. Leaves to others: what a request does
(`receiver`).
"""

from typing import Any, NamedTuple


class Endpoint(NamedTuple):
    """A request that takes effect: its path, its name in the books, what it says of the order.

    Args:
        path: where it is sent with POST.
        name: what its rows are called, as the agent's steps are.
        field: the member that says what is wanted; `type` is what JSON has to have there.
    """

    path: str
    name: str
    field: str
    type: type

    def request(self, order: str, body: Any) -> dict[str, Any]:
        """What a sender says."""
        return {"order": order, self.field: body}


CHARGE = Endpoint("/charges", "charge", "amount", int)
EMAIL = Endpoint("/emails", "send_email", "text", str)
CRM = Endpoint("/crm", "update_crm", "note", str)
VOID = Endpoint("/void", "void", "key", str)
"""Takes back what came under a key, and lets nothing come under it any more."""

EFFECTS = (CHARGE, EMAIL, CRM, VOID)
BY_PATH = {endpoint.path: endpoint for endpoint in EFFECTS}
BY_NAME = {endpoint.name: endpoint for endpoint in EFFECTS}

KEY_HEADER, REPLAYED_HEADER = "Idempotency-Key", "Idempotent-Replayed"
THINK, LOOKUP, BOOKS = "/think", "/lookup", "/books"
POSTED = (*BY_PATH, THINK)
READ = (LOOKUP, BOOKS)
SWITCHED = (*BY_NAME, "think")
"""What has switches."""


def receipt(name: str, order: str) -> str:
    """What a request that took effect is answered with."""
    return f"{name} accepted for {order}"
