"""Building: from one snapshot of a table to the artifact that its searches are answered from.

A job looks what is to be built (`job.py`, `state.py`), a process of its own builds it (`process.py`, `child.py`), and
the shelf gets it. `timer.py` asks for builds by itself, `tidying.py` takes away what is over.
"""
