"""Hypothesis strategies that several test files draw from."""

from hypothesis import strategies as st

from adjoint import (
    Binomial,
    Blocks,
    Bounded,
    Cost,
    DiskRevolve,
    HRevolve,
    Mixed,
    Multistage,
    Online,
    Overlapped,
    Periodic,
    Schedule,
    StoreAll,
    Tier,
    TwoLevel,
)

slots = st.integers(1, 20)
few = st.integers(1, 5)
transfers = st.sampled_from([0, 0.5, 2, 7])


@st.composite
def disks(draw: st.DrawFn, buffers: int = 0) -> Tier:
    cost = draw(transfers)
    return Tier("disk", draw(few), write=cost, read=cost, buffers=buffers)


two_tiers = st.tuples(st.builds(Tier, st.just("memory"), few), disks())
hosts = disks(buffers=2)

split_schedules: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Binomial, slots),
    st.builds(Periodic, st.integers(1, 30)),
    st.just(StoreAll()),
    st.builds(Online, slots),
    st.builds(Online, slots, leaf=st.integers(1, 30)),
    st.builds(Blocks, slots, leaf=st.integers(1, 30)),
    st.builds(Bounded, slots, st.integers(150, 300)),
    st.builds(Multistage, two_tiers),
    st.builds(HRevolve, two_tiers),
    st.builds(DiskRevolve, few, transfers, transfers),
    st.builds(TwoLevel, st.integers(1, 30), few),
    st.builds(Overlapped, few, hosts, online=st.booleans()),
)

schedules: st.SearchStrategy[Schedule] = st.one_of(
    split_schedules,
    st.builds(Mixed, few, joined=st.booleans()),
    st.builds(Binomial, slots, joined=st.just(True)),
    st.builds(HRevolve, two_tiers, joined=st.just(True)),
)


def rooms(cost: Cost) -> list[Tier]:
    """As many tiers and slots as a cost asks for."""
    needed = [tier.slots for tier in cost.traffic] or [cost.slots]
    # A tier has at least one slot; whether that is used, the counts tell.
    return [Tier(f"tier {number}", max(count, 1)) for number, count in enumerate(needed)]
