"""The conformance kit: numbered laws that any durable engine can be held to.

    from durable_mini.lab.conformance import check_engine
    print(check_engine(MyEngine))

Guarantees: `check_engine` needs a factory and three methods of an engine (`adapter` says which) and
no hook in it: every state that a killed process can leave behind is found by watching, and another
process goes on from each. A law has several cases, so that half an engine is told which half.
Leaves to others: engines to check (`engines` has durable_mini, `lab.museum` broken ones).
"""

from durable_mini.lab.conformance.adapter import (
    CAPABILITIES as CAPABILITIES,
    CheckedEngine as CheckedEngine,
    Factory as Factory,
)
from durable_mini.lab.conformance.checking import LAWS as LAWS, check_engine as check_engine
from durable_mini.lab.conformance.engines import (
    ENGINES as ENGINES,
    file_engine as file_engine,
    memory_engine as memory_engine,
    sqlite_engine as sqlite_engine,
)
from durable_mini.lab.conformance.laws import Law as Law
from durable_mini.lab.conformance.report import Report as Report, Row as Row
