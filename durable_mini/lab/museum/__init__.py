"""The museum of broken engines: faults that real engines had, each in a few lines.

    from durable_mini.lab.museum import MUSEUM, tour
    print(tour(MUSEUM))

Every exhibit is a small honest engine (`honest`, or `patient` with waits and sagas) in which one
method is as it was in a real one. Read the honest method, then the exhibit's.

Guarantees: `breaks` of an exhibit are the laws of the conformance kit that it breaks, all of them.
Leaves to others: finding them (`conformance`).
"""

from durable_mini.lab.museum import disks, outcomes, records, waits
from durable_mini.lab.museum.honest import HonestEngine as HonestEngine
from durable_mini.lab.museum.patient import PatientEngine as PatientEngine
from durable_mini.lab.museum.tour import Exhibit as Exhibit, Tour as Tour, tour as tour

MUSEUM: tuple[Exhibit, ...] = tuple(
    exhibit
    for room in (records, outcomes, disks, waits)
    for exhibit in vars(room).values()
    if "breaks" in getattr(exhibit, "__dict__", ())
)
"""Every exhibit, in the order of the rooms."""
