"""dynloop inside other libraries, one file for each of them; nothing is imported here, so that none of them is needed.

A file here is imported by its own name, as in `from dynloop.integrations.diffrax import TreeverseAdjoint`, and holds
whatever it takes from the other library beyond what that library documents.
"""
