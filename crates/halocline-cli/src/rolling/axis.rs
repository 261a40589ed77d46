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

/// Whether a key of this type is a time.
pub(super) fn is_time(data_type: &DataType) -> bool {
    data_type.is_temporal()
}

/// Seconds since 1970 or integers, of a column of keys without nulls.
pub(super) fn positions(column: &ArrayRef) -> Vec<f64> {
    fn of<T: ArrowPrimitiveType>(column: &ArrayRef, convert: impl Fn(T::Native) -> f64) -> Vec<f64> {
        column.as_primitive::<T>().values().iter().map(|&key| convert(key)).collect()
    }
    match column.data_type() {
        DataType::Int8 => of::<Int8Type>(column, f64::from),
        DataType::Int16 => of::<Int16Type>(column, f64::from),
        DataType::Int32 => of::<Int32Type>(column, f64::from),
        DataType::Int64 => of::<Int64Type>(column, |key| key as f64),
        DataType::UInt8 => of::<UInt8Type>(column, f64::from),
        DataType::UInt16 => of::<UInt16Type>(column, f64::from),
        DataType::UInt32 => of::<UInt32Type>(column, f64::from),
        DataType::UInt64 => of::<UInt64Type>(column, |key| key as f64),
        DataType::Date32 => of::<Date32Type>(column, |day| f64::from(day) * DAY),
        DataType::Date64 => of::<Date64Type>(column, |key| key as f64 / 1e3),
        DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(column, |key| key as f64),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            of::<TimestampMillisecondType>(column, |key| key as f64 / 1e3)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            of::<TimestampMicrosecondType>(column, |key| key as f64 / 1e6)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            of::<TimestampNanosecondType>(column, |key| key as f64 / 1e9)
        }
        _ => Vec::new(),
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
    let step = round_step((high - low) / count as f64);
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let first = (low / step).ceil();
    let places = (0..2 * count).map(|at| (first + at as f64) * step).take_while(|&at| at <= high);
    places.map(|at| Tick { at, text: format!("{:.digits$}", if at == 0.0 { 0.0 } else { at }) }).collect()
}

/// Round times from `low` to `high`, at most about `count`.
pub(super) fn times([low, high]: [f64; 2], count: usize) -> Vec<Tick> {
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
    let least = (high - low) / count as f64;
    let Some(&step) = STEPS.iter().find(|&&step| step >= least) else { return months([low, high], least) };
    if least < 0.1 {
        // Parts of a second, counted from the first row.
        let ticks = numbers([0.0, high - low], count).into_iter();
        return ticks.map(|tick| Tick { at: low + tick.at, text: format!("+{} s", tick.text) }).collect();
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
    places.filter_map(|at| Some(Tick { at, text: text(at)? })).collect()
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
    ticks.filter(|tick| tick.at >= low).collect()
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
        assert!(numbers([5.0, 5.0], 5).len() <= 10);
    }

    #[test]
    fn ticks_lie_at_round_times() {
        let january = 1_262_304_000.0;
        let span = |seconds: f64| times([january, january + seconds], 6);
        let of_year = ["2010-01", "2010-03", "2010-05", "2010-07", "2010-09", "2010-11"];
        assert_eq!(texts(&span(364.0 * DAY)), of_year);
        assert_eq!(texts(&span(10.0 * DAY))[..2], ["2010-01-01", "2010-01-03"]);
        assert_eq!(texts(&span(7200.0))[..2], ["01-01 00:00", "01-01 00:30"]);
        assert_eq!(texts(&span(12.0))[..2], ["00:00:00", "00:00:02"]);
        assert_eq!(texts(&span(0.02))[..2], ["+0.000 s", "+0.005 s"]);
        assert_eq!(texts(&span(30.0 * 365.25 * DAY))[..3], ["2010", "2015", "2020"]);
    }
}
