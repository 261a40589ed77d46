//! The key of a table as an axis: where its rows lie, and round places along it.

use crate::plot::round_step;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use time::{Date, Month, OffsetDateTime};

const DAY: f64 = 86_400.0;

/// What a unit of a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Integer,
    /// So many nanoseconds, since 1970.
    Time(i128),
}

impl Unit {
    /// That of a type of keys.
    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Date32 => Self::Time(86_400_000_000_000),
            DataType::Timestamp(TimeUnit::Second, _) => Self::Time(1_000_000_000),
            DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => Self::Time(1_000_000),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Self::Time(1_000),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Self::Time(1),
            _ => Self::Integer,
        }
    }
}

/// The keys of a column without nulls, in their unit.
pub(super) fn keys(column: &ArrayRef) -> Vec<i128> {
    fn of<T: ArrowPrimitiveType<Native: Into<i128>>>(column: &ArrayRef) -> Vec<i128> {
        column.as_primitive::<T>().values().iter().map(|&key| key.into()).collect()
    }
    match column.data_type() {
        DataType::Int8 => of::<Int8Type>(column),
        DataType::Int16 => of::<Int16Type>(column),
        DataType::Int32 => of::<Int32Type>(column),
        DataType::Int64 => of::<Int64Type>(column),
        DataType::UInt8 => of::<UInt8Type>(column),
        DataType::UInt16 => of::<UInt16Type>(column),
        DataType::UInt32 => of::<UInt32Type>(column),
        DataType::UInt64 => of::<UInt64Type>(column),
        DataType::Date32 => of::<Date32Type>(column),
        DataType::Date64 => of::<Date64Type>(column),
        DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(column),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(column),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(column),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(column),
        _ => Vec::new(),
    }
}

/// The axis of the keys, from the first one to the last. Keys are subtracted before they lose digits as `f64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) first: i128,
    pub(super) last: i128,
    pub(super) unit: Unit,
}

impl Axis {
    /// Where a key lies, from 0 to 1. The middle, if all keys are equal.
    pub(super) fn share(&self, key: i128) -> f64 {
        match self.last - self.first {
            ..=0 => 0.5,
            length => (key - self.first) as f64 / length as f64,
        }
    }

    /// Round places along it, at most about `count`, with their shares.
    pub(super) fn ticks(&self, count: usize) -> Vec<Tick> {
        let length = self.last - self.first;
        match self.unit {
            Unit::Integer => {
                // Numbers of many digits need more space.
                let count =
                    if self.last.abs().max(self.first.abs()) < 1_000_000_000_000 { count } else { count / 2 };
                let step = round_step(length as f64 / count as f64).max(1.0) as i128;
                let first = self.first.div_euclid(step) * step;
                let places = (0..=2 * count as i128).map(|at| first + at * step);
                let places = places.filter(|at| (self.first..=self.last).contains(at));
                places.map(|at| Tick { at: self.share(at), text: at.to_string() }).collect()
            }
            Unit::Time(nanoseconds) => {
                let low = (self.first * nanoseconds) as f64 / 1e9;
                let length = (length * nanoseconds) as f64 / 1e9;
                let ticks = if length > 0.0 { times(low, length, count) } else { vec![moment(low)] };
                let share = |after: f64| if length > 0.0 { after / length } else { 0.5 };
                ticks.into_iter().map(|tick| Tick { at: share(tick.at), ..tick }).collect()
            }
        }
    }
}

/// A place on an axis, with its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// Round numbers from `low` to `high`, at most about `count`.
pub(super) fn numbers([low, high]: [f64; 2], count: usize) -> Vec<Tick> {
    // Halves: the difference may lie beyond the type.
    let step = round_step((high / 2.0 - low / 2.0) / count as f64 * 2.0);
    let first = (low / step).ceil();
    let places = (0..2 * count).map(|at| (first + at as f64) * step).take_while(|&at| at <= high);
    let largest = low.abs().max(high.abs());
    let text = |at: f64| match step {
        // Many digits before or after the point.
        _ if largest >= 1e9 || step < 1e-6 => {
            let digits = (largest.log10().floor() - step.log10().floor()).clamp(0.0, 15.0) as usize;
            format!("{at:.digits$e}")
        }
        _ => {
            let digits = (-step.log10().floor()).max(0.0) as usize;
            format!("{at:.digits$}")
        }
    };
    // Not -0.
    places.map(|at| Tick { at, text: text(if at == 0.0 { 0.0 } else { at }) }).collect()
}

/// A moment alone, at 0.
fn moment(seconds: f64) -> Tick {
    let time = OffsetDateTime::from_unix_timestamp(seconds.floor() as i64);
    let text = time.map_or_else(
        |_| format!("{seconds} s"),
        |time| {
            let (hour, minute, second) = time.to_hms();
            format!("{} {hour:02}:{minute:02}:{second:02}", time.date())
        },
    );
    Tick { at: 0.0, text }
}

/// Round times from `low` seconds on, at most about `count`, as seconds after `low`.
fn times(low: f64, length: f64, count: usize) -> Vec<Tick> {
    const STEPS: [f64; 20] = [
        1.0,
        2.0,
        5.0,
        10.0,
        15.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        900.0,
        1800.0,
        3600.0,
        7200.0,
        10_800.0,
        21_600.0,
        43_200.0,
        DAY,
        2.0 * DAY,
        7.0 * DAY,
    ];
    let least = length / count as f64;
    let high = low + length;
    let Some(&step) = STEPS.iter().find(|&&step| step >= least) else { return months([low, high], least) };
    if least < 0.1 {
        // Parts of a second, counted from the first row.
        let ticks = numbers([0.0, length], count).into_iter();
        return ticks.map(|tick| Tick { text: format!("+{} s", tick.text), ..tick }).collect();
    }
    let first = (low / step).ceil();
    let places = (0..2 * count).map(|at| (first + at as f64) * step).take_while(|&at| at <= high);
    let text = |at: f64| {
        let time = OffsetDateTime::from_unix_timestamp(at as i64).ok()?;
        let (hour, minute, second) = time.to_hms();
        Some(match step {
            step if step < 60.0 => format!("{hour:02}:{minute:02}:{second:02}"),
            step if step < DAY => {
                format!("{:02}-{:02} {hour:02}:{minute:02}", u8::from(time.month()), time.day())
            }
            _ => time.date().to_string(),
        })
    };
    places.filter_map(|at| Some(Tick { at: at - low, text: text(at)? })).collect()
}

/// First days of months or years, at least about `least` seconds apart.
fn months([low, high]: [f64; 2], least: f64) -> Vec<Tick> {
    let least = least / (DAY * 365.25 / 12.0);
    let step = [1, 2, 3, 6].into_iter().find(|&step| f64::from(step) >= least);
    let step = step.unwrap_or(12 * round_step(least / 12.0).max(1.0) as i32);
    let Ok(start) = OffsetDateTime::from_unix_timestamp(low as i64) else { return Vec::new() };
    let first = (start.year() * 12 + i32::from(u8::from(start.month())) - 1).div_euclid(step) * step;
    let tick = |month: i32| {
        let of_year = Month::try_from(month.rem_euclid(12) as u8 + 1).ok()?;
        let date = Date::from_calendar_date(month.div_euclid(12), of_year, 1).ok()?;
        let at = date.midnight().assume_utc().unix_timestamp() as f64;
        let year = date.year();
        let text = if step < 12 { format!("{year}-{:02}", u8::from(of_year)) } else { year.to_string() };
        Some(Tick { at, text })
    };
    let ticks = (0..100).map_while(|at| tick(first + at * step)).take_while(|tick| tick.at <= high);
    ticks.filter(|tick| tick.at >= low).map(|tick| Tick { at: tick.at - low, ..tick }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.text.as_str()).collect()
    }

    #[test]
    fn ticks_lie_at_round_numbers() {
        assert_eq!(texts(&numbers([-0.3, 1.1], 4)), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts(&numbers([12.0, 88.0], 5)), ["20", "40", "60", "80"]);
        assert_eq!(
            texts(&numbers([1e6 - 1.1e-3, 1e6 + 1.1e-3], 3)),
            ["999999.999", "1000000.000", "1000000.001"]
        );
        assert_eq!(texts(&numbers([-1.2e308, 1.2e308], 3)), ["-1e308", "0e0", "1e308"]);
        assert_eq!(texts(&numbers([0.0, 2.1e-9], 3)), ["0e0", "1e-9", "2e-9"]);
        assert!(numbers([5.0, 5.0], 5).len() <= 10);
    }

    fn ticks(first: i128, last: i128, unit: Unit) -> Vec<String> {
        Axis { first, last, unit }.ticks(6).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_lie_at_round_times() {
        let january = 1_262_304_000;
        let span = |seconds: f64| times(january as f64, seconds, 6);
        let of_year = ["2010-01", "2010-03", "2010-05", "2010-07", "2010-09", "2010-11"];
        assert_eq!(texts(&span(364.0 * DAY)), of_year);
        assert_eq!(texts(&span(10.0 * DAY))[..2], ["2010-01-01", "2010-01-03"]);
        assert_eq!(texts(&span(7200.0))[..2], ["01-01 00:00", "01-01 00:30"]);
        assert_eq!(texts(&span(12.0))[..2], ["00:00:00", "00:00:02"]);
        assert_eq!(texts(&span(0.02))[..2], ["+0.000 s", "+0.005 s"]);
        assert_eq!(texts(&span(30.0 * 365.25 * DAY))[..3], ["2010", "2015", "2020"]);
        assert_eq!(ticks(january, january, Unit::Time(1_000_000_000)), ["2010-01-01 00:00:00"]);
    }

    /// As `f64` these keys are all equal.
    #[test]
    fn large_keys_keep_their_distances() {
        let first = 1_700_000_000_000_000_000;
        let axis = Axis { first, last: first + 100, unit: Unit::Time(1) };
        assert_eq!([axis.share(first), axis.share(first + 25), axis.share(first + 100)], [0.0, 0.25, 1.0]);
        assert_eq!(ticks(first, first + 100, Unit::Time(1))[1], "+2.0e-8 s");
        let most = i128::from(u64::MAX);
        let axis = Axis { first: most - 4, last: most, unit: Unit::Integer };
        assert_eq!(axis.share(most - 3), 0.25);
        assert_eq!(ticks(most - 4, most, Unit::Integer)[0], "18446744073709551612");
        assert_eq!(Axis { first: 7, last: 7, unit: Unit::Integer }.share(7), 0.5);
        assert_eq!(ticks(7, 7, Unit::Integer), ["7"]);
    }
}
