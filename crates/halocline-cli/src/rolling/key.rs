//! Keys of CSV files: integers, or times in their usual forms.

use arrow_array::{ArrayRef, Int64Array, TimestampMicrosecondArray, TimestampNanosecondArray};
use std::sync::Arc;
use time::{Date, Month, PrimitiveDateTime, Time, UtcOffset};

/// The kind of all keys of a file, as the first row with a key has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    Integer,
    /// Times in microseconds.
    Micros,
    /// Times in nanoseconds: that row has more than six digits after the second.
    Nanos,
}

impl KeyKind {
    /// That of the first key.
    pub(super) fn of(first: &[u8]) -> Self {
        match (integer(first), nanos(first)) {
            (Some(_), _) => Self::Integer,
            (None, Some((_, 7..))) => Self::Nanos,
            _ => Self::Micros,
        }
    }

    /// A key, or what the text is not, and what to do.
    pub(super) fn parse(self, text: &[u8]) -> Result<i64, &'static str> {
        match self {
            Self::Integer => integer(text).ok_or_else(|| match number(text) {
                Some(Number::Whole) => "integer of 64 bits",
                Some(Number::Fraction) => "integer; a key has no fraction, so multiply it to a whole number",
                None => "integer, as the first key of the file is",
            }),
            Self::Micros | Self::Nanos => {
                let Some((nanoseconds, digits)) = nanos(text) else {
                    return Err(match number(text) {
                        Some(Number::Whole) if integer(text).is_none() => "integer of 64 bits",
                        Some(Number::Whole) => {
                            "time, as the first key of the file is; write all keys as times, or all as integers"
                        }
                        Some(Number::Fraction) => {
                            "integer or time; a key has no fraction, so multiply it to a whole number"
                        }
                        None => "time; write 2010-12-31, 2010-12-31 23:59 or 2010-12-31T23:59:59.5Z",
                    });
                };
                match self {
                    Self::Nanos => {
                        i64::try_from(nanoseconds).map_err(|_| "time from 1678 to 2262, as nanoseconds need")
                    }
                    _ if digits > 6 => Err(
                        "time in microseconds, as the first key of the file is; write nanoseconds there, too",
                    ),
                    _ => i64::try_from(nanoseconds / 1000).map_err(|_| "time of 64 bits in microseconds"),
                }
            }
        }
    }

    /// A column of keys.
    pub(super) fn column(self, keys: Vec<Option<i64>>) -> ArrayRef {
        match self {
            Self::Integer => Arc::new(Int64Array::from(keys)),
            Self::Micros => Arc::new(TimestampMicrosecondArray::from(keys)),
            Self::Nanos => Arc::new(TimestampNanosecondArray::from(keys)),
        }
    }
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A text that is a number.
enum Number {
    Whole,
    Fraction,
}

fn number(text: &[u8]) -> Option<Number> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.trim_start_matches(['+', '-']);
    match !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        true => Some(Number::Whole),
        false => text.parse::<f64>().ok().map(|_| Number::Fraction),
    }
}

/// Nanoseconds since 1970 of a date, or of a date and a time, and the digits after the second. Without a zone it counts as UTC.
fn nanos(text: &[u8]) -> Option<(i128, usize)> {
    let text = std::str::from_utf8(text).ok()?;
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut parts = date.split(['-', '/']);
    let mut next = |count: usize| parts.next().filter(|part| part.len() == count).and_then(digits);
    let (year, month, day) = (next(4)?, next(2)?, next(2)?);
    if parts.next().is_some() {
        return None;
    }
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year as i32, month, u8::try_from(day).ok()?).ok()?;
    let (clock, offset) = match clock.strip_suffix('Z') {
        Some(clock) => (clock, UtcOffset::UTC),
        None => match clock.find(['+', '-']) {
            Some(at) => (&clock[..at], offset(&clock[at..])?),
            None => (clock, UtcOffset::UTC),
        },
    };
    let (time, precision) = time_of_day(clock)?;
    Some((PrimitiveDateTime::new(date, time).assume_offset(offset).unix_timestamp_nanos(), precision))
}

/// A number of digits alone.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `23:59`, `23:59:59` or `23:59:59.123456`, and the digits after the second.
fn time_of_day(text: &str) -> Option<(Time, usize)> {
    let mut parts = text.split(':');
    let next = |part: Option<&str>| part.filter(|part| part.len() == 2).and_then(digits);
    let (hour, minute) = (next(parts.next())?, next(parts.next())?);
    let (second, fraction, precision) = match parts.next() {
        None => (0, 0, 0),
        Some(part) => {
            let (second, fraction) = part.split_once('.').unwrap_or((part, "0"));
            if fraction.is_empty() || fraction.len() > 9 {
                return None;
            }
            (next(Some(second))?, digits(&format!("{fraction:0<9}"))?, fraction.len())
        }
    };
    let [hour, minute, second] = [hour, minute, second].map(|part| part as u8);
    let time =
        parts.next().is_none().then(|| Time::from_hms_nano(hour, minute, second, fraction).ok()).flatten();
    Some((time?, precision))
}

/// `+01:00` or `-0530`.
fn offset(text: &str) -> Option<UtcOffset> {
    let (sign, clock) = text.split_at(1);
    let (hours, minutes) = clock.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let two = |part: &str| i8::try_from(digits(part).filter(|_| part.len() == 2)?).ok();
    let sign = if sign == "-" { -1 } else { 1 };
    UtcOffset::from_hms(sign * two(hours)?, sign * two(minutes)?, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_their_usual_forms() {
        let of = |text: &str| KeyKind::Micros.parse(text.as_bytes()).ok();
        assert_eq!(of("1970-01-02"), Some(86_400_000_000));
        assert_eq!(of("1970/01/01 00:01"), Some(60_000_000));
        assert_eq!(of("1970-01-01T00:00:01.5Z"), Some(1_500_000));
        assert_eq!(of("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(of("1969-12-31 23:59:59.999999-0000"), Some(-1));
        for text in [
            "",
            "1970",
            "1970-1-1",
            "1970-02-30",
            "1970-01-01 24:00",
            "1970-01-01 0:00",
            "1970-01-01T00:00:01.",
            "1970-01-01T00:00:01.1234567891",
            "1970-01-01 00:00+1",
            "1970-01-01 00:00+25630",
            "1970-01-01 00:00+01:0",
            "1970-01-01 00:00+0:100",
            "1970-01-01 00:00+2600",
            "1970-01-01-01",
            "x",
            "1970-01-01 00:00:00:00",
            "+970-01-01",
            "1970-01-01 \u{1F600}",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_row_says_what_keys_are() {
        assert_eq!(KeyKind::of(b"-5"), KeyKind::Integer);
        assert_eq!(KeyKind::of(b"2010-01-01 00:00:00.5"), KeyKind::Micros);
        let pandas = b"2010-01-01 00:00:00.000000001";
        assert_eq!(KeyKind::of(pandas), KeyKind::Nanos);
        assert_eq!(KeyKind::Nanos.parse(pandas), Ok(1_262_304_000_000_000_001));
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_with_the_reason() {
        for (kind, text, why) in [
            (KeyKind::Integer, "1.5", "integer; a key has no fraction"),
            (KeyKind::Integer, "9223372036854775808", "integer of 64 bits"),
            (KeyKind::Integer, "2010-01-01", "integer, as the first key of the file is"),
            (KeyKind::of(b"1.5"), "1.5", "integer or time; a key has no fraction"),
            (KeyKind::of(b"9223372036854775808"), "9223372036854775808", "integer of 64 bits"),
            (
                KeyKind::Micros,
                "2010-01-01 00:00:00.1234567",
                "time in microseconds, as the first key of the file is",
            ),
            (KeyKind::Nanos, "1600-01-01", "time from 1678 to 2262"),
            (KeyKind::Micros, "5", "time, as the first key of the file is"),
            (KeyKind::Micros, "today", "time; write 2010-12-31"),
        ] {
            let found = kind.parse(text.as_bytes()).unwrap_err();
            assert!(found.starts_with(why), "{text}: {found}");
        }
    }
}
