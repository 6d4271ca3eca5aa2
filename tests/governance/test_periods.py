"""Days and months of a calendar, and what is used in them."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.governance.periods import DAY, MONTH, Calendar, Counts, zone_of


def at(text, zone="UTC"):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone_of(zone)).timestamp()


@pytest.mark.parametrize(
    ("per", "zone", "now", "label", "hours"),
    [
        (DAY, "UTC", "2026-11-30T23:59:59", "2026-11-30", 24),
        (DAY, "Asia/Shanghai", "2026-12-01T00:00:00", "2026-12-01", 24),
        (DAY, "Europe/Berlin", "2026-03-29T12:00:00", "2026-03-29", 23),
        (DAY, "Europe/Berlin", "2026-10-25T12:00:00", "2026-10-25", 25),
        (MONTH, "UTC", "2026-02-14T12:00:00", "2026-02", 28 * 24),
        (MONTH, "UTC", "2028-02-14T12:00:00", "2028-02", 29 * 24),
        (MONTH, "Europe/Berlin", "2026-10-01T00:00:00", "2026-10", 31 * 24 + 1),
        (MONTH, "UTC", "2026-12-31T23:59:59", "2026-12", 31 * 24),
    ],
)
def test_a_period_begins_at_midnight_where_the_zone_is(per, zone, now, label, hours):
    moment = at(now, zone)
    period, seconds = Calendar(per, zone_of(zone), lambda: moment).period()
    assert period.label == label
    assert period.begin <= moment < period.end
    assert period.end - period.begin == hours * 3600
    assert seconds == period.end - moment


@given(
    st.sampled_from([DAY, MONTH]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "America/Sao_Paulo"]),
    st.floats(0, 2**31),
)
def test_periods_follow_each_other_without_a_gap(per, zone, moment):
    clock = [moment]
    calendar = Calendar(per, zone_of(zone), lambda: clock[0])
    first, _ = calendar.period()
    assert first.begin <= moment < first.end
    clock[0] = first.end
    second, _ = calendar.period()
    assert second.begin == first.end
    assert second.number > first.number
    assert second.label > first.label


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "utc+1", "a\0b"])
def test_what_is_no_zone(name):
    with pytest.raises(ConfigError, match="expected a time zone such as UTC"):
        zone_of(name)


def test_a_zone_that_is_nearly_one():
    with pytest.raises(ConfigError, match='did you mean "Europe/Berlin"'):
        zone_of("Europe/Berln")


def test_a_machine_without_zones_says_so(monkeypatch):
    monkeypatch.setattr(zoneinfo, "ZoneInfo", lambda name: (_ for _ in ()).throw(zoneinfo.ZoneInfoNotFoundError(name)))
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert zone_of("UTC") is datetime.UTC
    with pytest.raises(ConfigError, match="this machine knows no time zones: pip install tzdata"):
        zone_of("Europe/Berlin")


def test_so_many_in_a_period_and_as_many_in_the_next():
    counts = Counts(3, 10)
    assert [counts.take("a", 1, 7) for _ in range(4)] == [2, 1, 0, -1]
    assert counts.take("b", 2, 7) == 1
    assert counts.take("b", 2, 7) == -1
    assert counts.take("b", 1, 7) == 0, "a refusal costs nothing"
    assert counts.take("a", 3, 8) == 0


def test_keys_of_periods_that_are_over_are_forgotten():
    counts = Counts(3, 1000)
    for n in range(1000):
        counts.take(f"k{n}", 1, 7)
    for n in range(400):
        counts.take(f"n{n}", 1, 8)
    assert len(counts) <= 601
    assert counts.crowded == 0


def test_beyond_the_most_keys_new_ones_are_counted_together():
    counts = Counts(2, 3)
    for key in "abc":
        counts.take(key, 1, 7)
    assert [counts.take(key, 1, 7) >= 0 for key in "defg"] == [True, True, False, False]
    assert counts.crowded == 4
    assert counts.take("a", 1, 7) == 0


def test_a_count_can_be_told():
    counts = Counts(10, 10)
    counts.fill("a", 3.9, 7)
    counts.fill("a", 9.0, 7)
    counts.fill("b", 50.0, 7)
    counts.fill("c", -1.0, 7)
    assert [counts.take(key, 1, 7) for key in "abc"] == [2, 9, -1]
    counts.fill("a", 5.0, 8)
    assert counts.take("a", 1, 8) == 4
