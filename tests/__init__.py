"""The tests. A package, so that no other distribution's `tests` can stand in its place on the path."""
