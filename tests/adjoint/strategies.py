"""Hypothesis strategies that several test files draw from."""

from hypothesis import strategies as st

from adjoint import Binomial, Online, Periodic, Schedule, StoreAll

slots = st.integers(1, 20)

split_schedules: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Binomial, slots),
    st.builds(Periodic, st.integers(1, 30)),
    st.just(StoreAll()),
    st.builds(Online, slots),
    st.builds(Online, slots, leaf=st.integers(1, 30)),
)

schedules: st.SearchStrategy[Schedule] = st.one_of(split_schedules, st.builds(Binomial, slots, joined=st.just(True)))
